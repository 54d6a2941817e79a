/* listing.h - private to datasets/: sorted lists of the names in a directory, and the train/test layout that the sets of the
 * user's own files share.
 *
 * Names are sorted bytewise, so the order that the file system lists them in does not matter. Those that begin with a dot
 * and files without an image suffix are passed over. */
#ifndef BATCHMARK_DATASETS_LISTING_H
#define BATCHMARK_DATASETS_LISTING_H

#include "source.h"

typedef struct Names {
    char  **item;
    int64_t count, capacity;
} Names;

Status listing_no_memory(void);

void names_free(Names *names);

/* Appends `name`, which came from malloc, and takes it over; frees it where it cannot. NULL is an error too. */
Status names_take(Names *names, char *name);

/* The sorted names of the directories, or of the image files (.jpg, .jpeg, .png), in dir. The caller frees *out, on
 * failure too. */
Status list_directory(const char *dir, bool directories, Names *out);

/* DIR/train with DIR/val (or DIR/test, where there is no val): *two is true and these are the roots. None of them: both
 * roots are DIR. STATUS_INPUT where one is missing. The caller frees both, on failure too. */
Status list_split_roots(const char *dir, char *roots[SPLIT_COUNT], bool *two);

/* How many of n samples become the test split where the layout has none: a tenth, at least one of two. */
int64_t list_test_share(int64_t n);

#endif
