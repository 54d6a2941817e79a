/* sample_texts.h - a small SWORD module and a small WordNet, whole or broken on purpose. */
#ifndef BATCHMARK_TESTS_SAMPLE_TEXTS_H
#define BATCHMARK_TESTS_SAMPLE_TEXTS_H

#include "sample_files.h"

/* ot and nt with SAMPLE_BOOKS blocks each, SAMPLE_CHAPTERS chapters a block, of sentences of made-up words. */
enum { SAMPLE_BOOKS = 3, SAMPLE_CHAPTERS = 20 };
void sample_write_bible(const char *dir);

/* dir/<name>.bzs and .bzz of these blocks. */
void sample_write_ztext(const char *dir, const char *name, const char *const *blocks, int count);

/* data.noun with SAMPLE_GLOSSES glosses, gloss i of lexicographer file 3 + i % 12 but the last quarter of file 5, and
 * the same under the names of the other three files. */
enum { SAMPLE_GLOSSES = 400 };
void sample_write_wordnet(const char *dir);

/* cmocka set-up and tear-down: *state is a TextFolder with the files of both packages in `dir`, and an empty directory
 * beside it; text sets are not cached. */
typedef struct TextFolder {
    char dir[SAMPLE_PATH_BYTES], empty[SAMPLE_PATH_BYTES];
} TextFolder;
int text_folder_setup(void **state);
int text_folder_teardown(void **state);

#endif
