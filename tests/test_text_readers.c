/* test_text_readers.c - the readers of SWORD modules and WordNet files against every defect that those can have. */
#include "../datasets/text_source.h"
#include "fault_alloc.h"
#include "open_data.h"
#include "sample_files.h"
#include "sample_texts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SEQ = 32 };

static TextConfig config_of(const char *name, const char *dir)
{
    return (TextConfig){ .name = name, .dir = dir, .seq = SEQ, .vocab_size = 300, .seed = 1 };
}

/* ---- SWORD ---- */

/* The texts that sword_read makes of one block, joined by '|'. */
static Status read_block(const TextFolder *folder, const char *block, char *out)
{
    sample_write_ztext(folder->empty, "block", &block, 1);
    FileBytes index, data;
    assert_int_equal(file_read(folder->empty, "block.bzs", &index).code, STATUS_OK);
    assert_int_equal(file_read(folder->empty, "block.bzz", &data).code, STATUS_OK);
    Documents documents;
    memset(&documents, 0, sizeof documents);
    Status status = sword_read(&index, &data, &documents);
    *out = '\0';
    for (int64_t i = 0; i < documents.count; i++) {
        int64_t start = documents_start(&documents, i);
        sprintf(out + strlen(out), "%s%.*s", i ? "|" : "", (int)(documents.end[i] - start), documents.bytes + start);
    }
    documents_free(&documents);
    file_free(&index);
    file_free(&data);
    return status;
}

static void expect_osis(const TextFolder *folder, const char *block, const char *want)
{
    char got[1000];
    Status status = read_block(folder, block, got);
    if (status.code != STATUS_OK)
        fail_msg("%s: %s", block, status.text);
    assert_string_equal(got, want);
}

static void expect_bad_osis(const TextFolder *folder, const char *block, const char *word)
{
    char got[1000];
    Status status = read_block(folder, block, got);
    if (status.code != STATUS_INPUT || !strstr(status.text, word) || !strstr(status.text, "block.bzz: block 0, byte"))
        fail_msg("%s: expected '%s', got %s", block, word, status.text);
}

static void osis_loses_tags_and_footnotes(void **state)
{
    const TextFolder *folder = *state;
    expect_osis(folder, "plain", "plain");
    expect_osis(folder, "a<w lemma=\"x\">b</w>c<l/>d", "abc d");
    expect_osis(folder, "a<note n='1'>x<note>y</note>&amp;<b>z</b></note>b<note/>c", "abc");
    expect_osis(folder, "a<w x=\"1>2\" y='\"'>b</w>", "ab");
    expect_osis(folder, "a<!-- <x> \" -->b<!---->c", "abc");
    expect_osis(folder, "&amp;&lt;&gt;&quot;&apos;&#65;&#x42;&#xe9;", "&<>\"'AB\u00E9");
    static const char no_references[] = "&x; &#; &#x; &#0; &#xD800; &#x110000; &#99999999999; & &#65";
    expect_osis(folder, no_references, no_references);
    expect_osis(folder, "front<chapter sID=\"1\"/>one<chapter eID=\"1\"/> more<chapter n='2'>two</chapter>three",
                "front| one  more| two three");
    expect_osis(folder, "<chapter sID=\"1\"/> <p/> <chapter sID=\"2\"/>x", " x"); /* nothing but spaces is no document */
    expect_bad_osis(folder, "a<w", "a tag has no end");
    expect_bad_osis(folder, "a<w x=\"1>b", "a tag has no end");
    expect_bad_osis(folder, "a<!-- b ->", "a comment has no end");
    expect_bad_osis(folder, "a<note>b", "<note> has no end");
    expect_bad_osis(folder, "a</note>b", "</note> without");
}

/* Replaces bytes of a file while the set is opened, which must fail, and puts the old ones back. */
static void expect_bad_file(const TextFolder *folder, const char *set, const char *name, const void *bytes, size_t length,
                            const char *word)
{
    char path[SAMPLE_PATH_BYTES];
    size_t old_length;
    uint8_t *old = sample_read(sample_path(path, folder->dir, name), &old_length);
    sample_write(path, bytes, length);
    text_expect_refusal(config_of(set, folder->dir), STATUS_INPUT, name, word);
    sample_write(path, old, old_length);
    free(old);
}

static void damaged_sword_files_are_refused(void **state)
{
    const TextFolder *folder = *state;
    char path[SAMPLE_PATH_BYTES];
    size_t index_length, data_length;
    uint8_t *index = sample_read(sample_path(path, folder->dir, "ot.bzs"), &index_length);
    uint8_t *data = sample_read(sample_path(path, folder->dir, "ot.bzz"), &data_length);
    expect_bad_file(folder, "bible", "ot.bzs", "", 0, "file size 0 bytes");
    expect_bad_file(folder, "bible", "ot.bzs", index, index_length - 1, "no whole number of 12-byte records");
    expect_bad_file(folder, "bible", "ot.bzz", data, 0, "file size 0 bytes");
    uint8_t zeros[24] = { 0 };
    expect_bad_file(folder, "bible", "ot.bzs", zeros, 24, "holds no text");

    sample_write(sample_path(path, folder->dir, "ot.bzz"), data, data_length - 1);
    text_expect_refusal(config_of("bible", folder->dir), STATUS_INPUT, "ot.bzs", "block 2 ends at byte");
    sample_write(path, data, data_length);
    const struct { int byte; uint8_t value; const char *file, *word; } changes[] = {
        { 3, 0xFF, "ot.bzs", "block 0 ends at byte" },      /* offset */
        { 7, 0xFF, "ot.bzs", "block 0 ends at byte" },      /* packed */
        { 11, 0x7F, "ot.bzs", "claims to unpack" },         /* 2 GB */
        { 10, 0x80, "ot.bzs", "claims to unpack" },         /* 8 MB of 2 kB */
        { 8, (uint8_t)(index[8] + 1), "ot.bzz", "the index says" },
        { 9, (uint8_t)(index[9] - 1), "ot.bzz", "zlib data: buffer error" },
        { 0, 1, "ot.bzz", "zlib data: data error" },
    };
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        uint8_t old = index[changes[i].byte];
        index[changes[i].byte] = changes[i].value;
        sample_write(sample_path(path, folder->dir, "ot.bzs"), index, index_length);
        text_expect_refusal(config_of("bible", folder->dir), STATUS_INPUT, changes[i].file, changes[i].word);
        index[changes[i].byte] = old;
        sample_write(path, index, index_length);
    }
    expect_bad_file(folder, "bible", "ot.bzs", data, data_length / 12 * 12, "block 0"); /* the two swapped */
    for (size_t at = 0; at < data_length; at += data_length / 50) { /* zlib's own checksum finds any other change */
        data[at] ^= 0x10;
        sample_write(sample_path(path, folder->dir, "ot.bzz"), data, data_length);
        text_expect_refusal(config_of("bible", folder->dir), STATUS_INPUT, "ot.bzz", "zlib data");
        data[at] ^= 0x10;
    }
    sample_write(sample_path(path, folder->dir, "ot.bzz"), data, data_length);
    free(index);
    free(data);
}

/* ---- WordNet ---- */

static void damaged_wordnet_files_are_refused(void **state)
{
    const TextFolder *folder = *state;
    static const struct { const char *text, *word; } cases[] = {
        { "  only a licence\n", "holds no synset" },
        { "00000000 03 n 01 x | a gloss", "line 1 has no end" },
        { "00000000 03 n 01 x | a gloss\n00000028 03 n | b\n", "line 2: synset offset is 00000028, the line is at" },
        { "0000000 03 n 01 x | a gloss\n", "line 1: synset offset" },
        { "0000\n", "line 1: synset offset" },
        { "\n", "line 1: synset offset" },
        { "00000000 45 n 01 x | a gloss\n", "lexicographer file 45" },
        { "00000000 3 n 01 x | a gloss\n", "lexicographer file 3 " },
        { "00000000 \n", "lexicographer file" },
        { "00000000 03 n 01 x a gloss\n", "no '|'" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect_bad_file(folder, "glosses", "data.verb", cases[i].text, strlen(cases[i].text), cases[i].word);
    expect_bad_file(folder, "glosses", "data.adv", "", 0, "file size 0 bytes");
    char path[SAMPLE_PATH_BYTES];
    size_t length;
    uint8_t *text = sample_read(sample_path(path, folder->dir, "data.noun"), &length);
    memmove(text + 5000, text + 5001, length - 5001); /* one byte is missing somewhere */
    sample_write(path, text, length - 1);
    text_expect_refusal(config_of("glosses", folder->dir), STATUS_INPUT, "data.noun", "synset offset");
    sample_write_wordnet(folder->dir);
    free(text);
    static const char one_file[] = "00000000 03 n | a\n00000018 03 n | b\n";
    expect_bad_file(folder, "gloss-classes", "data.noun", one_file, strlen(one_file), "one lexicographer file");
}

static void missing_files_are_named(void **state)
{
    const TextFolder *folder = *state;
    text_expect_refusal(config_of("bible", "/nowhere"), STATUS_INPUT, "/nowhere/ot.bzs", "No such file");
    TextConfig config = config_of("bible", folder->dir);
    config.vocab = "/nowhere/vocab.txt";
    text_expect_refusal(config, STATUS_INPUT, "/nowhere/vocab.txt", "No such file");
    config.vocab = folder->dir;
    text_expect_refusal(config, STATUS_INPUT, folder->dir, "not a regular file");
    if (access("/usr/share/wordnet", F_OK) != 0)
        text_expect_refusal(config_of("glosses", NULL), STATUS_INPUT, "apt install wordnet-base", "/usr/share/wordnet");
    if (access("/usr/share/sword", F_OK) != 0)
        text_expect_refusal(config_of("text", NULL), STATUS_INPUT, "apt install sword-text-web", "--data-dir");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(osis_loses_tags_and_footnotes),
        cmocka_unit_test(damaged_sword_files_are_refused),
        cmocka_unit_test(damaged_wordnet_files_are_refused),
        cmocka_unit_test(missing_files_are_named),
    };
    return cmocka_run_group_tests(tests, text_folder_setup, text_folder_teardown);
}
