/* text.h - token sequences from real texts and from a generator, and the loader that masks, pads and packs them.
 *
 * A TextSet holds its whole corpus as WordPiece ids, in memory, and is safe to read from many threads. A sample is one
 * sequence "[CLS] text [SEP]" ("copy": "[CLS] segment [SEP] segment [SEP]") of at most TextConfig.seq tokens; lengths
 * differ. A TextLoader owns threads, the order of an epoch, the masking of the masked language model (Devlin et al.
 * 2018, 3.1) and a bounded queue of finished batches. Depends on kernels/base.h, zlib and the C library. */
#ifndef BATCHMARK_DATASETS_TEXT_H
#define BATCHMARK_DATASETS_TEXT_H

#include "data.h" /* Split */

typedef struct TextConfig {
    const char *name;   /* "bible", "glosses", "text" (both), "copy": masked LM; "gloss-classes": classification */
    const char *dir;    /* where its files are ("text": those of both sets); NULL = the packages' usual places */
    const char *vocab;  /* a BERT vocab.txt to use; NULL = a vocabulary of its own, from the training split */
    int64_t  vocab_size; /* entries, [unusedN] filling up; 0 = 30522, or as many as `vocab` has */
    int64_t  seq;       /* longest sequence in tokens, [CLS] and [SEP] included, 8..512 */
    uint64_t seed;      /* which sequences the generator makes, which samples `limit` keeps */
    int64_t  limit;     /* use only the first n samples of each split after a seeded shuffle; 0 = all */
    bool     classify;  /* the caller needs classes: a set for masked LM is refused */
} TextConfig;

typedef struct TextSet TextSet;

/* Reads, splits and tokenises, or takes the result of an earlier time from a cache file: in $BATCHMARK_CACHE (empty: no
 * cache), $XDG_CACHE_HOME/batchmark or ~/.cache/batchmark; a cache that cannot be written is done without. Errors:
 * STATUS_USAGE unknown name, bad size; STATUS_INPUT missing, cut or wrong file, naming file and field; STATUS_IO;
 * STATUS_OOM. The caller closes it. */
Status text_open(const TextConfig *config, TextSet **out);
void   text_close(TextSet *set); /* NULL is fine */

int64_t     text_count(const TextSet *set, Split split);
int64_t     text_classes(const TextSet *set);                   /* 0: masked LM */
const char *text_class_name(const TextSet *set, int64_t label); /* owned by set */
int64_t     text_vocab_size(const TextSet *set);
const char *text_token(const TextSet *set, int64_t id);         /* "##able"; owned by set */
const char *text_describe(const TextSet *set);                  /* one line: sources, counts, split; owned by set */
const char *text_names(void);                                   /* comma-separated list of what text_open takes */

/* Sample `index` of a split before masking. Thread-safe. text_read fills tokens and types, of text_length entries each,
 * and returns the class, -1 for masked LM. */
int64_t text_length(const TextSet *set, Split split, int64_t index);
int32_t text_read(const TextSet *set, Split split, int64_t index, int32_t *tokens, int32_t *types);

/* Where the sequences of a batch lie in its rows. */
typedef enum TextPolicy {
    TEXT_FIXED,   /* sequence b at rows b seq ... */
    TEXT_DYNAMIC, /* at rows b stride ..., stride = longest of this batch rounded up to pad_multiple, at most seq */
    TEXT_BUDGET,  /* back to back, as many sequences (at most `batch`) as fit in `rows`; pad_multiple plays no part */
    TEXT_POLICY_COUNT
} TextPolicy;

const char *text_policy_name(TextPolicy policy); /* "fixed", "dynamic", "budget" */

typedef struct TextLoaderConfig {
    Split      split;
    int64_t    batch;        /* sequences in a batch, at most; >= 1 */
    TextPolicy policy;
    int64_t    rows;         /* rows of tokens that a batch holds; 0 = batch seq. Not less than that, but for "budget",
                                where it is the budget: at least seq */
    int64_t    targets;      /* masked LM: most target positions of a batch; 0 = so many that none is ever left out */
    int64_t    pad_multiple; /* 0 = 8 */
    bool       all_rows;     /* masked LM: a label for every row instead of a list of target rows */
    int        threads;      /* 0 = fill batches in the caller, inside text_loader_next */
    int        queue;        /* finished batches kept ready, >= 1 */
    int64_t    hold;         /* batches the caller may keep: each stays valid until the hold-th call after it; 0 = 1 */
    uint64_t   seed;         /* order and masking; the same seed gives the same batches for any thread count */
    bool       shuffle;      /* false: index order (evaluation) */
    bool       repeat;       /* true: epochs follow each other without end; false: one epoch */
    bool       drop_last;    /* an epoch's last batch is dropped unless it has `batch` sequences */
} TextLoaderConfig;

/* Masking: max(1, round(0.15 n)) of a sequence's n ordinary tokens (not [CLS], [SEP]) are targets; 80 % of them become
 * [MASK], 10 % a random ordinary token, 10 % stay. A function of (seed, epoch, sample) in the training split and of
 * (seed, sample) in the test split, so that every evaluation asks the same. Where a batch would exceed `targets`, the
 * last ones in the order of rows are left as they were. */
typedef struct TextBatch {
    int64_t  sequences;     /* that hold a sample */
    int64_t  token_count;   /* real ones */
    int64_t  rows_used;     /* the sequences' rows; rows_used - token_count of them are padding */
    int64_t  targets;       /* positions to predict */
    int64_t  epoch;         /* 0-based */
    int64_t  index;         /* 0-based within the epoch */
    int32_t *tokens;        /* (rows) ids after masking; -1 in rows of padding and unused ones */
    int32_t *positions;     /* (rows) 0.. within the sequence, or -1 */
    int32_t *types;         /* (rows) 0 first segment, 1 second, or -1 */
    int32_t *spans;         /* (batch, 2) first row and real tokens of each sequence; {0, 0} where there is none */
    int32_t *target_rows;   /* masked LM (targets): rows in ascending order, then -1; NULL with all_rows */
    int32_t *target_labels; /* masked LM (targets), with all_rows (rows): the true ids; -1 elsewhere */
    int32_t *labels;        /* classification (batch): the class, -1 where there is no sequence; NULL for masked LM */
} TextBatch;

typedef struct TextLoader TextLoader;

/* Checks the config and replaces its zeros by the defaults they stand for, so that the caller knows the sizes of the
 * arrays; targets becomes 0 for classification. text_loader_create does the same to its own copy. STATUS_USAGE. */
Status text_loader_defaults(const TextSet *set, TextLoaderConfig *config);

/* Starts the threads. The set must outlive the loader. Errors: STATUS_USAGE, STATUS_OOM. */
Status text_loader_create(const TextSet *set, const TextLoaderConfig *config, TextLoader **out);

/* The next batch in order; *out is NULL after the last one of a non-repeating loader. The batch stays valid until the
 * hold-th text_loader_next after this one. */
Status text_loader_next(TextLoader *loader, const TextBatch **out);

/* Batches in an epoch. With "budget" and shuffling this is the first epoch's; another order may fill one more or
 * less. */
int64_t text_loader_batches(const TextLoader *loader);

/* Seconds callers have spent waiting inside text_loader_next so far. */
double text_loader_wait_seconds(const TextLoader *loader);

void text_loader_destroy(TextLoader *loader); /* stops threads, frees; NULL is fine */

#endif
