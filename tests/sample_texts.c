/* sample_texts.c - the bodies of sample_texts.h. */
#include "sample_texts.h"

#include "../kernels/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

enum { TEXT_BYTES = 1 << 18 };

/* Appends `count` words; most of them are common ones. */
static void add_words(char *text, uint64_t stream, int count)
{
    static const char *const syllables[] = { "ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "wu" };
    for (int i = 0; i < count; i++) {
        RngBlock r = rng_block(11, stream, (uint64_t)i);
        uint32_t word = r.word[0] % 5 ? r.word[1] % 20 : r.word[1] % 1000;
        strcat(text, i ? " " : "");
        for (int k = 0; k < 3; k++, word /= 10)
            strcat(text, syllables[word % 10]);
    }
}

static void put_little_endian(char *out, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        out[i] = (char)(value >> 8 * i & 0xFF);
}

void sample_write_ztext(const char *dir, const char *name, const char *const *blocks, int count)
{
    static char data[2 * TEXT_BYTES], index[12 * 64];
    uint32_t offset = 0;
    for (int i = 0; i < count; i++) {
        uLongf packed = sizeof data - offset;
        assert_int_equal(compress((Bytef *)data + offset, &packed, (const Bytef *)blocks[i], strlen(blocks[i])), Z_OK);
        put_little_endian(index + 12 * i, offset);
        put_little_endian(index + 12 * i + 4, (uint32_t)packed);
        put_little_endian(index + 12 * i + 8, (uint32_t)strlen(blocks[i]));
        offset += (uint32_t)packed;
    }
    char path[SAMPLE_PATH_BYTES], file[64];
    snprintf(file, sizeof file, "%s.bzs", name);
    sample_write(sample_path(path, dir, file), index, 12 * (size_t)count);
    snprintf(file, sizeof file, "%s.bzz", name);
    sample_write(sample_path(path, dir, file), data, offset);
}

static void write_book(char *text, int book)
{
    *text = '\0';
    for (int c = 0; c < SAMPLE_CHAPTERS; c++) {
        sprintf(text + strlen(text), "<chapter osisID=\"B%d.%d\" sID=\"c\"/>", book, c);
        for (int s = 0; s < 6; s++) {
            strcat(text, "<w lemma=\"strong:H1>2\">");
            add_words(text, (uint64_t)(book * 1000 + c * 10 + s), 5 + (book + c + s) % 7);
            strcat(text, "</w>.<note>a footnote</note> ");
        }
        strcat(text, "<chapter eID=\"c\"/>");
    }
}

void sample_write_bible(const char *dir)
{
    for (int half = 0; half < 2; half++) {
        char *blocks[SAMPLE_BOOKS];
        for (int b = 0; b < SAMPLE_BOOKS; b++) {
            blocks[b] = malloc(TEXT_BYTES / 2);
            assert_non_null(blocks[b]);
            write_book(blocks[b], half * SAMPLE_BOOKS + b);
        }
        sample_write_ztext(dir, half ? "nt" : "ot", (const char *const *)blocks, SAMPLE_BOOKS);
        for (int b = 0; b < SAMPLE_BOOKS; b++)
            free(blocks[b]);
    }
}

void sample_write_wordnet(const char *dir)
{
    static const char *const names[] = { "data.noun", "data.verb", "data.adj", "data.adv" };
    char *text = malloc(TEXT_BYTES);
    assert_non_null(text);
    for (int f = 0; f < 4; f++) {
        strcpy(text, "  1 The licence | is no gloss  \n");
        for (int i = 0; i < SAMPLE_GLOSSES; i++) {
            int file = i < 3 * SAMPLE_GLOSSES / 4 ? 3 + i % 12 : 5;
            sprintf(text + strlen(text), "%08d %02d n 01 entity 0 000 | ", (int)strlen(text), file);
            add_words(text, (uint64_t)(100000 + f * 1000 + i), 1 + i % 13);
            strcat(text, "  \n");
        }
        char path[SAMPLE_PATH_BYTES];
        sample_write(sample_path(path, dir, names[f]), text, strlen(text));
    }
    free(text);
}

int text_folder_setup(void **state)
{
    TextFolder *folder = malloc(sizeof *folder);
    assert_non_null(folder);
    setenv("BATCHMARK_CACHE", "", 1);
    sample_make_dir(folder->dir);
    sample_make_dir(folder->empty);
    sample_write_bible(folder->dir);
    sample_write_wordnet(folder->dir);
    *state = folder;
    return 0;
}

int text_folder_teardown(void **state)
{
    TextFolder *folder = *state;
    sample_remove_tree(folder->dir);
    sample_remove_tree(folder->empty);
    free(folder);
    return 0;
}
