/* sword.c - reads the books of a SWORD module of type zText: zlib blocks of OSIS XML.
 *
 * The index (ot.bzs, nt.bzs) is a row of records {offset, packed bytes, unpacked bytes}, little-endian uint32, one a
 * block; the blocks lie in ot.bzz, nt.bzz. A block, here a book, is a piece of OSIS whose tags are dropped: most stand
 * for layout and become a space, those inside a line (a word with its Strong's number, a name) become nothing, and
 * footnotes go with their content. A <chapter> begins a document; what stands before the first one is another. */
#include "source.h"
#include "text_source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* Deflate cannot shrink by more than 1032 : 1 (zlib's technical details), so larger claims are false. */
enum { RECORD_BYTES = 12, BLOCK_MOST = 64 << 20, TOTAL_MOST = 512 << 20, RATIO_MOST = 1032 };

/* ---- OSIS ---- */

typedef struct Osis {
    const char *text;
    size_t      length, at;
    int         notes;  /* footnotes that are open */
    const char *file;   /* for messages */
    int64_t     block;
    Documents  *out;
} Osis;

/* "<name attributes>" */
typedef struct Tag {
    const char *name;
    size_t      name_length;
    const char *rest;   /* behind the name, up to '>' */
    size_t      rest_length;
    bool        closing, empty; /* </name>, <name/> */
} Tag;

static Status osis_error(const Osis *o, const char *what)
{
    return status_error(STATUS_INPUT, "%s: block %" PRId64 ", byte %zu: %s", o->file, o->block, o->at, what);
}

/* The position of '>' of the tag at `at`, past quoted values; length where there is none. */
static size_t tag_end(const Osis *o, size_t at)
{
    char quote = '\0';
    for (; at < o->length; at++) {
        char c = o->text[at];
        if (quote)
            quote = c == quote ? '\0' : quote;
        else if (c == '"' || c == '\'')
            quote = c;
        else if (c == '>')
            return at;
    }
    return at;
}

static Status read_tag(Osis *o, Tag *tag)
{
    size_t end = tag_end(o, o->at);
    if (end == o->length)
        return osis_error(o, "a tag has no end");
    const char *p = o->text + o->at + 1, *last = o->text + end;
    tag->closing = p < last && *p == '/';
    p += tag->closing;
    tag->name = p;
    while (p < last && *p != ' ' && *p != '\t' && *p != '\r' && *p != '\n' && *p != '/')
        p++;
    tag->name_length = (size_t)(p - tag->name);
    tag->rest = p;
    tag->rest_length = (size_t)(last - p);
    tag->empty = last[-1] == '/' && !tag->closing;
    o->at = end + 1;
    return status_ok();
}

static bool tag_is(const Tag *tag, const char *name)
{
    return strlen(name) == tag->name_length && memcmp(tag->name, name, tag->name_length) == 0;
}

/* A milestone <chapter eID="..."/> is the end of one. */
static bool ends_something(const Tag *tag)
{
    for (size_t i = 0; i + 5 < tag->rest_length; i++)
        if (memcmp(tag->rest + i, " eID=", 5) == 0)
            return true;
    return tag->closing;
}

static bool is_inside_a_line(const Tag *tag)
{
    static const char *const names[] = { "w", "divineName", "transChange", "hi", "q", "seg", "name", "foreign",
                                         "inscription", "reference", "note" };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (tag_is(tag, names[i]))
            return true;
    return false;
}

static Status take_tag(Osis *o)
{
    Tag tag = { NULL, 0, NULL, 0, false, false };
    TRY(read_tag(o, &tag));
    if (tag_is(&tag, "note") && !tag.empty)
        o->notes += tag.closing ? -1 : 1;
    if (o->notes < 0)
        return osis_error(o, "</note> without <note>");
    if (o->notes > 0 || is_inside_a_line(&tag))
        return status_ok();
    if (tag_is(&tag, "chapter") && !ends_something(&tag))
        TRY(documents_end(o->out, 0));
    return documents_add(o->out, " ", 1);
}

/* The value of a digit in base 10 or 16, -1 of anything else. */
static int digit_of(char c, bool hex)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 32; /* lower case */
    return hex && c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "&#65;" or "&#x41;" at p: its code point, and in *used its length; 0 where it is neither. */
static uint32_t read_reference(const char *p, size_t left, size_t *used)
{
    bool hex = left > 2 && p[2] == 'x';
    size_t at = hex ? 3 : 2;
    uint32_t value = 0;
    if (left < 4 || p[1] != '#' || digit_of(p[at], hex) < 0)
        return 0;
    for (int digit; at < left && value < 0x110000 && (digit = digit_of(p[at], hex)) >= 0; at++)
        value = value * (hex ? 16 : 10) + (uint32_t)digit;
    bool surrogate = value >= 0xD800 && value < 0xE000;
    if (at == left || p[at] != ';' || value == 0 || value >= 0x110000 || surrogate)
        return 0;
    *used = at + 1;
    return value;
}

/* &amp; and its four kin, and numbers; anything else stands for itself. */
static Status take_entity(Osis *o)
{
    static const struct { const char *name; char c; } named[] = {
        { "&amp;", '&' }, { "&lt;", '<' }, { "&gt;", '>' }, { "&quot;", '"' }, { "&apos;", '\'' },
    };
    const char *p = o->text + o->at;
    size_t left = o->length - o->at, used = 1;
    for (size_t i = 0; i < COUNT_OF(named); i++) {
        size_t n = strlen(named[i].name);
        if (left >= n && memcmp(p, named[i].name, n) == 0) {
            o->at += n;
            return documents_add(o->out, &named[i].c, 1);
        }
    }
    uint32_t c = read_reference(p, left, &used);
    char utf8[4];
    size_t bytes = utf8_encode(c ? c : '&', utf8);
    o->at += used;
    return documents_add(o->out, utf8, bytes);
}

static Status take_text(Osis *o)
{
    size_t from = o->at;
    while (o->at < o->length && o->text[o->at] != '<' && o->text[o->at] != '&')
        o->at++;
    return documents_add(o->out, o->text + from, o->at - from);
}

static Status take_comment(Osis *o)
{
    for (size_t at = o->at + 4; at + 3 <= o->length; at++)
        if (memcmp(o->text + at, "-->", 3) == 0) {
            o->at = at + 3;
            return status_ok();
        }
    return osis_error(o, "a comment has no end");
}

static Status read_osis(Osis *o)
{
    while (o->at < o->length) {
        const char *p = o->text + o->at;
        if (*p == '<')
            TRY(o->length - o->at >= 4 && memcmp(p, "<!--", 4) == 0 ? take_comment(o) : take_tag(o));
        else if (o->notes > 0)
            o->at++;
        else
            TRY(*p == '&' ? take_entity(o) : take_text(o));
    }
    if (o->notes > 0)
        return osis_error(o, "a <note> has no end");
    return documents_end(o->out, 0);
}

/* ---- blocks ---- */

static uint32_t little_endian(const char *bytes)
{
    const uint8_t *b = (const uint8_t *)bytes;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static Status unpack(const FileBytes *data, int64_t block, uint32_t offset, uint32_t packed, uint32_t unpacked,
                     char *text)
{
    uLongf got = unpacked;
    int result = uncompress((Bytef *)text, &got, (const Bytef *)data->bytes + offset, packed);
    if (result == Z_MEM_ERROR)
        return status_error(STATUS_OOM, "%s: no memory to unpack", dataset_shown_path(data->path));
    if (result != Z_OK)
        return status_error(STATUS_INPUT, "%s: block %" PRId64 ": zlib data: %s", dataset_shown_path(data->path),
                            block, zError(result));
    if (got != unpacked)
        return status_error(STATUS_INPUT, "%s: block %" PRId64 " unpacks to %lu bytes, the index says %u",
                            dataset_shown_path(data->path), block, (unsigned long)got, unpacked);
    return status_ok();
}

static Status check_record(const FileBytes *index, const FileBytes *data, int64_t block, uint32_t offset,
                           uint32_t packed, uint32_t unpacked)
{
    const char *shown = dataset_shown_path(index->path);
    if ((uint64_t)offset + packed > data->length)
        return status_error(STATUS_INPUT, "%s: block %" PRId64 " ends at byte %" PRIu64 ", the data file at %zu", shown,
                            block, (uint64_t)offset + packed, data->length);
    if (unpacked > BLOCK_MOST || unpacked > (uint64_t)packed * RATIO_MOST)
        return status_error(STATUS_INPUT, "%s: block %" PRId64 " claims to unpack %u bytes to %u", shown, block,
                            packed, unpacked);
    return status_ok();
}

Status sword_read(const FileBytes *index, const FileBytes *data, Documents *out)
{
    const char *shown = dataset_shown_path(index->path);
    if (index->length == 0 || index->length % RECORD_BYTES != 0)
        return status_error(STATUS_INPUT, "%s: %zu bytes are no whole number of %d-byte records", shown, index->length,
                            RECORD_BYTES);
    int64_t count = out->count;
    uint64_t total = 0;
    for (int64_t block = 0; block < (int64_t)(index->length / RECORD_BYTES); block++) {
        const char *record = index->bytes + RECORD_BYTES * block;
        uint32_t offset = little_endian(record), packed = little_endian(record + 4);
        uint32_t unpacked = little_endian(record + 8);
        if (packed == 0 && unpacked == 0)
            continue; /* a book that the module lacks */
        TRY(check_record(index, data, block, offset, packed, unpacked));
        total += unpacked;
        if (total > TOTAL_MOST)
            return status_error(STATUS_INPUT, "%s: more than %d bytes of text", shown, TOTAL_MOST);
        char *text = malloc((size_t)unpacked + 1);
        if (!text)
            return status_error(STATUS_OOM, "%s: no memory for %u bytes", shown, unpacked);
        Status status = unpack(data, block, offset, packed, unpacked, text);
        if (status.code == STATUS_OK)
            status = read_osis(&(Osis){ text, unpacked, 0, 0, dataset_shown_path(data->path), block, out });
        free(text);
        TRY(status);
    }
    return out->count > count ? status_ok() : status_error(STATUS_INPUT, "%s: holds no text", shown);
}
