/* wordpiece.h - private to datasets/: words from raw text, vocabularies of word pieces, and what they share.
 *
 * The steps are those of BERT's uncased tokeniser (Devlin et al. 2018): split_words makes lower-case words without
 * accents (words.c), wordpiece_encode cuts each into the longest pieces that the vocabulary has (wordpiece.c), and
 * vocab_train makes a vocabulary from counted words (vocab_train.c). All of them take memory, never files. */
#ifndef BATCHMARK_DATASETS_WORDPIECE_H
#define BATCHMARK_DATASETS_WORDPIECE_H

#include "../kernels/base.h"

/* ---- strings.c: distinct strings, numbered in the order in which they came ---- */

typedef struct Strings {
    char    *bytes;  /* each NUL-terminated */
    size_t   length, capacity;
    size_t  *start;  /* (count + 1) where each begins */
    int64_t  count, room;
    int32_t *slot;   /* (slots, a power of two) open addressing: a string's number, or -1 */
    int64_t  slots;
} Strings;

/* FNV-1a, continued over more bytes; starts from STRINGS_HASH. */
#define STRINGS_HASH UINT64_C(0xCBF29CE484222325)
static inline uint64_t strings_hash(uint64_t hash, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (uint8_t)bytes[i]) * UINT64_C(0x100000001B3);
    return hash;
}

/* The string's number, or -1. */
int64_t strings_find(const Strings *s, const char *bytes, size_t length, uint64_t hash);

/* Finds or adds. STATUS_OOM. */
Status strings_add(Strings *s, const char *bytes, size_t length, int64_t *number);

static inline const char *strings_get(const Strings *s, int64_t i) { return s->bytes + s->start[i]; }
static inline size_t strings_length(const Strings *s, int64_t i) { return s->start[i + 1] - s->start[i] - 1; }
void strings_free(Strings *s);

/* Makes room for one more item of a growing array: doubles *capacity where count has reached it. NULL-safe. */
Status grow_array(void **array, int64_t count, int64_t *capacity, size_t item_bytes);

/* ---- words.c ---- */

enum { WORD_MOST = 100, WORD_BYTES = 4 * (WORD_MOST + 1) };

typedef struct Word {
    char   mark[2];            /* room for "##" before the bytes */
    char   bytes[WORD_BYTES];  /* UTF-8, not terminated */
    size_t length;
    int    characters;         /* WORD_MOST + 1: more than that, and bytes is cut */
} Word;

/* One character of UTF-8: its code point, or 0xFFFD for a byte that starts none. *at moves past it. */
uint32_t utf8_decode(const char *bytes, size_t length, size_t *at);
size_t   utf8_encode(uint32_t c, char out[4]); /* bytes written */

/* Hands every word of the text to `take`, which may change it; ends early with take's error. Control characters and
 * invalid bytes vanish; spaces end words; punctuation and CJK characters are words of their own; letters become lower
 * case (Latin up to U+017F, Greek, Cyrillic) and lose their accents (the same Latin, and combining marks). */
Status split_words(const char *text, size_t length, Status (*take)(void *context, Word *word), void *context);

/* ---- wordpiece.c ---- */

typedef struct Vocab {
    Strings  entries;                 /* number = id */
    int32_t  pad, unk, cls, sep, mask;
    int32_t *ordinary;                /* ids that are neither special nor [unusedN] */
    int64_t  ordinaries;
    size_t   longest;                 /* bytes of the longest entry */
} Vocab;

typedef struct Tokens {
    int32_t *id;
    int64_t  count, capacity;
} Tokens;

/* Reads BERT's vocab.txt: an entry a line, its number the id. `name` is what errors call it. size > 0: more entries
 * than that are an error, fewer are filled up with [unusedN]. STATUS_INPUT names the line; on failure too the caller
 * frees *out. */
Status vocab_parse(const char *text, size_t length, const char *name, int64_t size, Vocab *out);
void   vocab_free(Vocab *vocab);

/* Appends the ids of a text: greedy longest match, words of over WORD_MOST characters or without a match are [UNK]. */
Status wordpiece_encode(const Vocab *vocab, const char *text, size_t length, Tokens *out);

/* ---- vocab_train.c ---- */

typedef struct WordCounts {
    Strings  words;
    int64_t *times;  /* (capacity) */
    int64_t  capacity;
} WordCounts;

Status word_counts_add(WordCounts *counts, const char *text, size_t length);
void   word_counts_free(WordCounts *counts);

/* The text of a vocab.txt of at most `size` entries, in a block that the caller frees. STATUS_OOM. */
Status vocab_train(const WordCounts *counts, int64_t size, char **text, size_t *length);

/* The specials, in BERT's places where size is large enough (vocab_train), [unusedN] between. */
enum { VOCAB_BERT_LAYOUT = 1024, VOCAB_SIZE_MIN = 32, VOCAB_SIZE_MAX = 1 << 20 };
Status vocab_add_specials(int64_t size, Strings *entries);

#endif
