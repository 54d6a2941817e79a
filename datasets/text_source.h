/* text_source.h - private to datasets/: documents from files, the tokenised corpus, its cache, and TextSet itself.
 *
 * A document is what may not be torn apart by the split into training and test: a chapter, a gloss. Readers take
 * memory and fill Documents (sword.c, wordnet.c); text_corpus.c makes a vocabulary and a Corpus of ids from them;
 * text_cache.c saves that; text.c cuts it into samples and owns everything the sets share. */
#ifndef BATCHMARK_DATASETS_TEXT_SOURCE_H
#define BATCHMARK_DATASETS_TEXT_SOURCE_H

#include "text.h"
#include "wordpiece.h"

/* Streams of rng_block beside those of source.h; the low 32 bits are free for an epoch or split. */
#define STREAM_TEXT_LIMIT (UINT64_C(0xDA7A1001) << 32) /* + split: which samples `limit` keeps */
#define STREAM_TEXT_COPY  (UINT64_C(0xDA7A1002) << 32) /* + split: the generator's segments */
#define STREAM_TEXT_ORDER (UINT64_C(0xDA7A1003) << 32) /* + epoch: the order of samples */
#define STREAM_TEXT_MASK  (UINT64_C(0xDA7A1004) << 32) /* + epoch: training targets and what they become */
#define STREAM_TEXT_EVAL  (UINT64_C(0xDA7A1005) << 32) /* the same in the test split, for every epoch */

enum { TEXT_SEQ_MIN = 8, TEXT_SEQ_MAX = 512 };

/* ---- documents.c ---- */

typedef struct FileBytes {
    char   *path;
    char   *bytes;  /* the whole file */
    size_t  length;
} FileBytes;

/* Reads dir/name (name NULL: the file dir) of at most a gigabyte; errors are those of dataset_read_file. On failure too
 * the caller frees *out. */
Status file_read(const char *dir, const char *name, FileBytes *out);
void   file_free(FileBytes *file);

typedef struct Documents {
    char    *bytes;           /* all texts, one behind the other */
    int64_t  length, capacity;
    int64_t *end;             /* (count) where each text ends */
    int32_t *label;           /* (count) */
    int64_t  count, ends, labels; /* ends and labels are those arrays' capacities */
} Documents;

/* Appends to the text that is being written. */
Status documents_add(Documents *d, const char *bytes, size_t length);
/* Ends that text; nothing happens where it is empty or only spaces. */
Status documents_end(Documents *d, int32_t label);
void   documents_free(Documents *d);

static inline int64_t documents_start(const Documents *d, int64_t i) { return i == 0 ? 0 : d->end[i - 1]; }

/* ---- readers ---- */

/* A zText module of the SWORD project: one document a chapter, label 0. STATUS_INPUT names the file and block. */
Status sword_read(const FileBytes *index, const FileBytes *data, Documents *out);

/* A data.* file of WordNet (wndb(5WN)): one document a gloss, label its lexicographer file's number. */
Status wordnet_read(const FileBytes *file, Documents *out);
enum { WORDNET_FILES = 45 };
const char *wordnet_file_name(int32_t number); /* "noun.animal" for a noun's, else "other" */

/* ---- text_corpus.c, text_cache.c ---- */

typedef struct Corpus {
    Vocab    vocab;
    Tokens   tokens;    /* all documents, one behind the other */
    int64_t  documents;
    int64_t *end;       /* (documents) where each ends, in tokens */
    int32_t *label;     /* (documents) */
    uint8_t *test;      /* (documents) 1: in the test split */
} Corpus;

/* vocab_file NULL: a vocabulary of its own. On failure too the caller frees *out. */
Status corpus_build(const Documents *d, const FileBytes *vocab_file, int64_t vocab_size, Corpus *out);
void   corpus_free(Corpus *corpus);

/* What a cached corpus was made from. */
typedef struct CacheKey {
    char     path[1024];   /* of the cache file; "" = no cache */
    uint64_t source_bytes; /* of all source files together */
    uint32_t source_crc;   /* of their contents, one behind the other */
    uint32_t vocab_crc;    /* of the vocabulary file; 0 without one */
    int64_t  vocab_size;   /* as asked for */
} CacheKey;

/* Fills in path from the environment, the set's name and the other fields, and `dir`, where the sources lie. */
void cache_locate(const char *name, const char *dir, CacheKey *key);

/* *found = false where there is none, or it does not fit the key, or it is damaged. STATUS_OOM alone is an error. */
Status cache_load(const CacheKey *key, Corpus *out, bool *found);
/* Writes a temporary file beside it and renames; a file system that refuses is no error. */
Status cache_save(const CacheKey *key, const Corpus *corpus);

/* ---- text.c ---- */

typedef struct Sample {
    int64_t first;  /* token in the corpus */
    int32_t length; /* ordinary tokens */
    int32_t label;  /* class, or -1 */
} Sample;

struct TextSet {
    const char *name;
    bool     generator;
    int64_t  seq;
    uint64_t seed;
    Corpus   corpus;                /* of the generator: the vocabulary alone */
    Sample  *samples[SPLIT_COUNT];  /* NULL in the generator */
    int64_t  count[SPLIT_COUNT];
    int64_t  classes;
    int32_t  class_file[10];        /* lexicographer file of each class */
    char     description[768];
};

/* text_samples.c: samples[] and count[] from the corpus; for classes also the choice of them. STATUS_INPUT where a
 * split would be empty. */
Status text_cut_passages(TextSet *set);
Status text_choose_classes(TextSet *set);
Status text_limit(TextSet *set, int64_t limit);

/* ---- text_mask.c ---- */

/* Chooses the targets among the `length` tokens of a sequence and changes them: labels[i] becomes the true id of a
 * target and is -1 elsewhere. At most `most` targets; returns how many. counter: the sample's number. */
int64_t text_mask(const Vocab *vocab, uint64_t seed, uint64_t stream, int64_t counter, int64_t most, int32_t *tokens,
                  int64_t length, int32_t *labels);

/* Targets of a sequence of n ordinary tokens: max(1, round(0.15 n)), 0 where n = 0. */
int64_t text_targets(int64_t n);

#endif
