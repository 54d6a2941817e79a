/* choice_cache.h - what tuning chose, kept from one run to the next and listed for the record.
 *
 * A choice is found by a key that names everything it depends on: library and version, device, and the operation
 * (choice_key). What a choice means is the business of who asks: an engine of cuDNN with its knobs, an algorithm of cuBLASLt.
 * The file is a convenience: one that is cut, foreign or cannot be written costs time, never a run. Two processes may use
 * it at once; the later one adds to what the earlier one wrote. */
#ifndef BATCHMARK_KERNELS_CUDA_CHOICE_CACHE_H
#define BATCHMARK_KERNELS_CUDA_CHOICE_CACHE_H

#include "cuda.h"

enum { CHOICE_NAME_BYTES = 160, CHOICE_KEY_BYTES = 768 };

typedef struct Choice {
    char   name[CHOICE_NAME_BYTES]; /* one line without tabs: "e62 k2=4" */
    size_t bytes;                   /* workspace */
    double us;                      /* microseconds a call; NaN = was not timed */
} Choice;

/* folder: where the file is, or NULL for $XDG_CACHE_HOME/batchmark or else $HOME/.cache/batchmark (neither: nothing is kept).
 * Reads the file; warns at most once if it is not good. Only STATUS_OOM. */
Status choice_cache_create(const char *folder, ChoiceCache **out);

/* Writes what is new. NULL is fine. */
void choice_cache_destroy(ChoiceCache *c);

/* "cuDNN 9.19.0 | NVIDIA H100 80GB HBM3 sm_90 | <what>"; tabs and line ends become spaces. Returns text. */
const char *choice_key(const CudaBackend *be, const char *library, const char *what, char *text, size_t size);

/* False if it is not known, or without a cache (NULL). */
bool choice_cache_find(const ChoiceCache *c, const char *key, Choice *out);

/* Keeps a choice, in place of an older one; written at the latest by choice_cache_destroy. Without a cache: nothing. */
Status choice_cache_keep(ChoiceCache *c, const char *key, const Choice *choice);

/* What this process uses for an op, from tuning or not, for the record; an op's text is listed once, the last choice wins.
 * Without a cache: nothing. */
Status choice_cache_use(ChoiceCache *c, const char *op, const Choice *choice);

/* BackendVtable.choices: everything that choice_cache_use was told, in that order. */
void cuda_choices(Backend *be, void (*note)(void *context, const char *op, const char *choice, size_t bytes, double us), void *context);

#endif
