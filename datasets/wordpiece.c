/* wordpiece.c - vocabularies in the format of BERT's vocab.txt, and the greedy cutting of words into their entries.
 *
 * The longest entry that begins the word is cut off, then the longest "##" entry that begins the rest, and so on
 * (Schuster & Nakajima 2012 as in Devlin et al. 2018); where nothing fits, the whole word becomes [UNK]. */
#include "wordpiece.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPECIALS = 5, BERT_FIRST_SPECIAL = 100 /* [UNK]; [PAD] is 0 */, ENTRY_MOST = 4 * WORD_MOST + 2 };

static const char *const special_names[SPECIALS] = { "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]" };

/* ---- a vocabulary ---- */

static Status add_text(Strings *entries, const char *text)
{
    int64_t number;
    return strings_add(entries, text, strlen(text), &number);
}

/* Adds [unusedN] entries, N from 0 and not there yet, until there are `count`. */
static Status fill_up(Strings *entries, int64_t count)
{
    for (int64_t n = 0; entries->count < count; n++) {
        char name[32];
        snprintf(name, sizeof name, "[unused%" PRId64 "]", n);
        TRY(add_text(entries, name));
    }
    return status_ok();
}

Status vocab_add_specials(int64_t size, Strings *entries)
{
    TRY(add_text(entries, special_names[0]));
    if (size >= VOCAB_BERT_LAYOUT)
        TRY(fill_up(entries, BERT_FIRST_SPECIAL));
    for (int i = 1; i < SPECIALS; i++)
        TRY(add_text(entries, special_names[i]));
    return status_ok();
}

static bool is_unused(const char *entry)
{
    return strncmp(entry, "[unused", 7) == 0 && entry[strlen(entry) - 1] == ']';
}

/* After the entries: where the specials are, which entries are ordinary, the longest one. */
static Status index_entries(const char *name, Vocab *v)
{
    int32_t *const place[SPECIALS] = { &v->pad, &v->unk, &v->cls, &v->sep, &v->mask };
    for (int i = 0; i < SPECIALS; i++) {
        size_t length = strlen(special_names[i]);
        int64_t id = strings_find(&v->entries, special_names[i], length,
                                  strings_hash(STRINGS_HASH, special_names[i], length));
        if (id < 0)
            return status_error(STATUS_INPUT, "%s: entry %s is missing", name, special_names[i]);
        *place[i] = (int32_t)id;
    }
    v->ordinary = malloc((size_t)v->entries.count * sizeof *v->ordinary);
    if (!v->ordinary)
        return status_error(STATUS_OOM, "%s: no memory for %" PRId64 " entries", name, v->entries.count);
    for (int32_t id = 0; id < v->entries.count; id++) {
        bool special = id == v->pad || id == v->unk || id == v->cls || id == v->sep || id == v->mask;
        if (!special && !is_unused(strings_get(&v->entries, id)))
            v->ordinary[v->ordinaries++] = id;
        if (strings_length(&v->entries, id) > v->longest)
            v->longest = strings_length(&v->entries, id);
    }
    if (v->ordinaries == 0)
        return status_error(STATUS_INPUT, "%s: no entries besides the special ones", name);
    return status_ok();
}

static Status check_entry(const char *entry, size_t length, const char *name, int64_t line)
{
    if (length == 0)
        return status_error(STATUS_INPUT, "%s: line %" PRId64 " is empty", name, line);
    if (length > ENTRY_MOST)
        return status_error(STATUS_INPUT, "%s: line %" PRId64 " is %zu bytes long, expected 1..%d", name, line,
                            length, ENTRY_MOST);
    for (size_t at = 0; at < length;) {
        size_t before = at;
        uint32_t c = utf8_decode(entry, length, &at);
        if (c == 0 || (c == 0xFFFD && at == before + 1))
            return status_error(STATUS_INPUT, "%s: line %" PRId64 " is not UTF-8 text", name, line);
    }
    return status_ok();
}

static Status parse_lines(const char *text, size_t length, const char *name, int64_t most, Strings *entries)
{
    for (size_t at = 0; at < length;) {
        int64_t line = entries->count + 1, id;
        const char *entry = text + at, *end = memchr(entry, '\n', length - at);
        if (!end)
            return status_error(STATUS_INPUT, "%s: line %" PRId64 " has no end; the file is cut", name, line);
        at = (size_t)(end - text) + 1;
        if (end > entry && end[-1] == '\r')
            end--;
        TRY(check_entry(entry, (size_t)(end - entry), name, line));
        if (line > most)
            return status_error(STATUS_INPUT, "%s: more than %" PRId64 " entries", name, most);
        TRY(strings_add(entries, entry, (size_t)(end - entry), &id));
        if (id != line - 1)
            return status_error(STATUS_INPUT, "%s: line %" PRId64 " repeats the entry '%s' of line %" PRId64, name,
                                line, strings_get(entries, id), id + 1);
    }
    return status_ok();
}

Status vocab_parse(const char *text, size_t length, const char *name, int64_t size, Vocab *out)
{
    CHECK(size >= 0 && size <= VOCAB_SIZE_MAX);
    memset(out, 0, sizeof *out);
    if (length == 0)
        return status_error(STATUS_INPUT, "%s: the vocabulary is empty", name);
    TRY(parse_lines(text, length, name, size ? size : VOCAB_SIZE_MAX, &out->entries));
    TRY(fill_up(&out->entries, size));
    return index_entries(name, out);
}

void vocab_free(Vocab *vocab)
{
    strings_free(&vocab->entries);
    free(vocab->ordinary);
    memset(vocab, 0, sizeof *vocab);
}

/* ---- cutting words ---- */

/* The id of the longest entry that is a beginning of key and longer than `least` bytes, -1 without one; *used is its
 * length. key is whole UTF-8 characters. */
static int32_t longest_match(const Vocab *vocab, const char *key, size_t length, size_t least, size_t *used)
{
    uint64_t hash[ENTRY_MOST + 1]; /* of the first n bytes */
    size_t most = length < vocab->longest ? length : vocab->longest;
    hash[0] = STRINGS_HASH;
    for (size_t n = 0; n < most; n++)
        hash[n + 1] = strings_hash(hash[n], key + n, 1);
    for (size_t n = most; n > least; n--) {
        bool whole = n == length || ((uint8_t)key[n] & 0xC0) != 0x80;
        int64_t id = whole ? strings_find(&vocab->entries, key, n, hash[n]) : -1;
        if (id >= 0) {
            *used = n;
            return (int32_t)id;
        }
    }
    return -1;
}

typedef struct Encoding {
    const Vocab *vocab;
    Tokens      *out;
} Encoding;

static Status append_token(Tokens *out, int32_t id)
{
    TRY(grow_array((void **)&out->id, out->count, &out->capacity, sizeof *out->id));
    out->id[out->count++] = id;
    return status_ok();
}

static Status encode_word(void *context, Word *word)
{
    const Encoding *encoding = context;
    Tokens *out = encoding->out;
    int64_t start = out->count;
    char *end = word->bytes + word->length;
    bool fits = word->characters <= WORD_MOST;
    for (char *rest = word->bytes; fits && rest < end;) {
        size_t mark = rest > word->bytes ? 2 : 0, used = 0;
        char *key = rest - mark; /* over bytes that are done with */
        memcpy(key, "##", mark);
        int32_t id = longest_match(encoding->vocab, key, (size_t)(end - key), mark, &used);
        fits = id >= 0;
        if (fits)
            TRY(append_token(out, id));
        rest = key + used;
    }
    if (fits)
        return status_ok();
    out->count = start;
    return append_token(out, encoding->vocab->unk);
}

Status wordpiece_encode(const Vocab *vocab, const char *text, size_t length, Tokens *out)
{
    Encoding encoding = { vocab, out };
    return split_words(text, length, encode_word, &encoding);
}
