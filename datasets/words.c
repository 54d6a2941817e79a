/* words.c - raw text to words, as BERT's uncased "basic tokenizer" does it.
 *
 * Characters are classed by code point: Latin up to U+017F, Greek and Cyrillic are lower-cased, Latin letters lose the
 * accents that canonical decomposition (Unicode NFD) would split off, so "É" becomes "e" but "ø" and "ß" stay.
 * Punctuation is every ASCII character that is no letter, digit or space, and Unicode's P classes in the blocks listed
 * below. Other scripts pass through unchanged. */
#include "wordpiece.h"

#include <string.h>

enum { INVALID = 0xFFFD };

/* ---- UTF-8 (RFC 3629) ---- */

uint32_t utf8_decode(const char *bytes, size_t length, size_t *at)
{
    const uint8_t *b = (const uint8_t *)bytes + *at;
    size_t left = length - *at;
    uint32_t c = b[0];
    size_t more = c < 0x80 ? 0 : c >= 0xC2 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : 4;
    *at += 1;
    if (more == 0)
        return c;
    if (more == 4 || more >= left)
        return INVALID;
    c &= 0x3Fu >> more;
    for (size_t i = 1; i <= more; i++) {
        if ((b[i] & 0xC0) != 0x80)
            return INVALID;
        c = c << 6 | (b[i] & 0x3Fu);
    }
    static const uint32_t least[4] = { 0, 0x80, 0x800, 0x10000 };
    if (c < least[more] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) /* overlong, too large, a surrogate */
        return INVALID;
    *at += more;
    return c;
}

size_t utf8_encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    for (size_t i = more; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF0 << (3 - more) & 0xF0) | c);
    return more + 1;
}

/* ---- classes of characters ---- */

typedef struct Range { uint32_t first, last; } Range;

static bool in_ranges(uint32_t c, const Range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    return false;
}

static bool is_space(uint32_t c)
{
    static const Range spaces[] = { { 0xA0, 0xA0 },     { 0x1680, 0x1680 }, { 0x2000, 0x200A }, { 0x2028, 0x2029 },
                                    { 0x202F, 0x202F }, { 0x205F, 0x205F }, { 0x3000, 0x3000 } };
    if (c < 0x80)
        return c == ' ' || c == '\t' || c == '\n' || c == '\r';
    return in_ranges(c, spaces, COUNT_OF(spaces));
}

/* Controls, formats (zero width, direction, byte order mark), private use, what is no character, combining accents. */
static bool is_dropped(uint32_t c)
{
    static const Range dropped[] = { { 0x80, 0x9F },     { 0xAD, 0xAD },     { 0x300, 0x36F },   { 0x200B, 0x200F },
                                     { 0x202A, 0x202E }, { 0x2060, 0x2064 }, { 0x2066, 0x206F }, { 0x302A, 0x302D },
                                     { 0xE000, 0xF8FF }, { 0xFEFF, 0xFEFF }, { 0xFFF9, 0xFFFB }, { 0xFFFD, 0xFFFF },
                                     { 0xE0000, 0x10FFFF } };
    if (c < 0x80)
        return c < ' ' || c == 0x7F;
    return in_ranges(c, dropped, COUNT_OF(dropped));
}

static bool is_punctuation(uint32_t c)
{
    static const Range marks[] = { { 0xA1, 0xA1 },     { 0xA7, 0xA7 },     { 0xAB, 0xAB },     { 0xB6, 0xB7 },
                                   { 0xBB, 0xBB },     { 0xBF, 0xBF },     { 0x37E, 0x37E },   { 0x387, 0x387 },
                                   { 0x2010, 0x2027 }, { 0x2030, 0x2043 }, { 0x2045, 0x2051 }, { 0x2053, 0x205E },
                                   { 0x2308, 0x230B }, { 0x2329, 0x232A }, { 0x3001, 0x3003 }, { 0x3008, 0x3011 },
                                   { 0x3014, 0x301F }, { 0x3030, 0x3030 }, { 0x303D, 0x303D }, { 0x30FB, 0x30FB },
                                   { 0xFF01, 0xFF03 }, { 0xFF05, 0xFF0A }, { 0xFF0C, 0xFF0F }, { 0xFF1A, 0xFF1B },
                                   { 0xFF1F, 0xFF20 }, { 0xFF3B, 0xFF3D }, { 0xFF3F, 0xFF3F }, { 0xFF5B, 0xFF5B },
                                   { 0xFF5D, 0xFF5D }, { 0xFF5F, 0xFF65 } };
    if (c < 0x80)
        return (c > ' ' && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7F);
    return in_ranges(c, marks, COUNT_OF(marks));
}

static bool is_cjk(uint32_t c) /* the ideographs that BERT's tokenizer sets apart */
{
    static const Range cjk[] = { { 0x3400, 0x4DBF },   { 0x4E00, 0x9FFF },   { 0xF900, 0xFAFF },
                                 { 0x20000, 0x2A6DF }, { 0x2A700, 0x2CEAF }, { 0x2F800, 0x2FA1F } };
    return in_ranges(c, cjk, COUNT_OF(cjk));
}

/* ---- lower case without accents ---- */

static uint32_t fold_latin(uint32_t c)
{
    /* U+00C0..U+017F: runs of letters with one base. What is missing does not decompose. */
    static const struct { uint16_t first, last; char base; } runs[] = {
        { 0xC0, 0xC5, 'a' },   { 0xC7, 0xC7, 'c' },   { 0xC8, 0xCB, 'e' },   { 0xCC, 0xCF, 'i' },   { 0xD1, 0xD1, 'n' },
        { 0xD2, 0xD6, 'o' },   { 0xD9, 0xDC, 'u' },   { 0xDD, 0xDD, 'y' },   { 0xE0, 0xE5, 'a' },   { 0xE7, 0xE7, 'c' },
        { 0xE8, 0xEB, 'e' },   { 0xEC, 0xEF, 'i' },   { 0xF1, 0xF1, 'n' },   { 0xF2, 0xF6, 'o' },   { 0xF9, 0xFC, 'u' },
        { 0xFD, 0xFD, 'y' },   { 0xFF, 0xFF, 'y' },   { 0x100, 0x105, 'a' }, { 0x106, 0x10D, 'c' }, { 0x10E, 0x10F, 'd' },
        { 0x112, 0x11B, 'e' }, { 0x11C, 0x123, 'g' }, { 0x124, 0x125, 'h' }, { 0x128, 0x130, 'i' }, { 0x134, 0x135, 'j' },
        { 0x136, 0x137, 'k' }, { 0x139, 0x13E, 'l' }, { 0x143, 0x148, 'n' }, { 0x14C, 0x151, 'o' }, { 0x154, 0x159, 'r' },
        { 0x15A, 0x161, 's' }, { 0x162, 0x165, 't' }, { 0x168, 0x173, 'u' }, { 0x174, 0x175, 'w' }, { 0x176, 0x178, 'y' },
        { 0x179, 0x17E, 'z' },
    };
    for (size_t i = 0; i < COUNT_OF(runs); i++)
        if (c >= runs[i].first && c <= runs[i].last)
            return (uint32_t)runs[i].base;
    if (c >= 0xC0 && c <= 0xDE && c != 0xD7)
        return c + 32; /* the ligature AE, O with stroke, Eth, Thorn */
    bool odd_is_upper = c >= 0x139 && c <= 0x148, upper = (c & 1) == (odd_is_upper ? 1u : 0u);
    if (c >= 0x100 && c <= 0x177 && c != 0x138 && upper)
        return c + 1;
    return c;
}

static uint32_t fold(uint32_t c)
{
    if (c < 0x80)
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    if (c >= 0xC0 && c <= 0x17F)
        return fold_latin(c);
    if ((c >= 0x391 && c <= 0x3A9) || (c >= 0x410 && c <= 0x42F))
        return c + 32;
    return c >= 0x400 && c <= 0x40F ? c + 80 : c;
}

/* ---- words ---- */

static void append(Word *word, uint32_t c)
{
    if (word->characters > WORD_MOST)
        return;
    word->length += utf8_encode(c, word->bytes + word->length);
    word->characters++;
}

static Status finish(Word *word, Status (*take)(void *context, Word *word), void *context)
{
    if (word->characters == 0)
        return status_ok();
    Status status = take(context, word);
    word->length = 0;
    word->characters = 0;
    return status;
}

Status split_words(const char *text, size_t length, Status (*take)(void *context, Word *word), void *context)
{
    Word word;
    word.length = 0;
    word.characters = 0;
    for (size_t at = 0; at < length;) {
        uint32_t c = utf8_decode(text, length, &at);
        if (is_space(c)) {
            TRY(finish(&word, take, context));
        } else if (is_dropped(c)) {
            continue;
        } else if (is_punctuation(c) || is_cjk(c)) {
            TRY(finish(&word, take, context));
            append(&word, c);
            TRY(finish(&word, take, context));
        } else {
            append(&word, fold(c));
        }
    }
    return finish(&word, take, context);
}
