/* text.c - the bodies of text.h. */
#include "text.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EN_DASH "\xe2\x80\x93"
#define ELLIPSIS "\xe2\x80\xa6"

void text_free(Text *t)
{
    free(t->bytes);
    *t = (Text){ 0 };
}

const char *text_bytes(const Text *t) { return t->bytes ? t->bytes : ""; }

static bool text_reserve(Text *t, size_t more)
{
    if (t->failed)
        return false;
    if (more > SIZE_MAX / 4 - t->length) {
        t->failed = true;
        return false;
    }
    size_t need = t->length + more + 1;
    if (need <= t->capacity)
        return true;
    size_t capacity = t->capacity ? t->capacity : 256;
    while (capacity < need)
        capacity *= 2;
    char *bytes = realloc(t->bytes, capacity);
    if (!bytes) {
        t->failed = true;
        return false;
    }
    t->bytes = bytes;
    t->capacity = capacity;
    return true;
}

void text_add_bytes(Text *t, const char *s, size_t length)
{
    if (!text_reserve(t, length))
        return;
    memcpy(t->bytes + t->length, s, length);
    t->length += length;
    t->bytes[t->length] = '\0';
}

void text_add(Text *t, const char *s) { text_add_bytes(t, s, strlen(s)); }

void text_format(Text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !text_reserve(t, (size_t)n)) {
        t->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(t->bytes + t->length, (size_t)n + 1, format, args);
    va_end(args);
    t->length += (size_t)n;
}

static bool is_control(char c) { return (unsigned char)c < 0x20 || c == 0x7f; }

void text_add_plain(Text *t, const char *s)
{
    if (!s)
        s = EN_DASH;
    for (; *s; s++)
        text_add_bytes(t, is_control(*s) ? " " : s, 1);
}

void text_add_markdown(Text *t, const char *s)
{
    if (!s)
        s = EN_DASH;
    for (; *s; s++) {
        if (strchr("\\`*_[]<>#|&~$", *s))
            text_add(t, "\\");
        text_add_bytes(t, is_control(*s) ? " " : s, 1);
    }
}

void text_add_html(Text *t, const char *s)
{
    if (!s)
        s = EN_DASH;
    for (; *s; s++) {
        switch (*s) {
        case '&': text_add(t, "&amp;"); break;
        case '<': text_add(t, "&lt;"); break;
        case '>': text_add(t, "&gt;"); break;
        case '"': text_add(t, "&quot;"); break;
        default: text_add_bytes(t, is_control(*s) ? " " : s, 1);
        }
    }
}

void text_add_gnuplot(Text *t, const char *s)
{
    text_add(t, "'");
    if (!s)
        s = EN_DASH;
    for (; *s; s++) {
        if (*s == '\'')
            text_add(t, "'");
        text_add_bytes(t, is_control(*s) ? " " : s, 1);
    }
    text_add(t, "'");
}

void text_add_csv(Text *t, const char *s)
{
    if (!s)
        return;
    bool quote = strpbrk(s, ",\"\r\n") != NULL || *s == ' ';
    if (quote)
        text_add(t, "\"");
    for (; *s; s++) {
        if (*s == '"')
            text_add(t, "\"");
        text_add_bytes(t, is_control(*s) ? " " : s, 1);
    }
    if (quote)
        text_add(t, "\"");
}

void text_add_shell(Text *t, const char *s)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
    if (*s && strspn(s, safe) == strlen(s)) {
        text_add(t, s);
        return;
    }
    text_add(t, "'");
    for (; *s; s++) {
        if (*s == '\'')
            text_add(t, "'\\''");
        else
            text_add_bytes(t, is_control(*s) ? " " : s, 1);
    }
    text_add(t, "'");
}

void text_add_slug(Text *t, const char *s)
{
    bool gap = false, any = false;
    for (; s && *s; s++) {
        char c = *s;
        if (c >= 'A' && c <= 'Z')
            c = (char)(c - 'A' + 'a');
        bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c == '.' && any);
        if (word && gap && any)
            text_add(t, "-");
        if (word)
            text_add_bytes(t, &c, 1);
        gap = !word;
        any = any || word;
    }
    if (!any)
        text_add(t, "x");
}

/* Put a comma between groups of three digits of the integer at the start of s, which has room. */
static void group_thousands(char *s)
{
    size_t start = *s == '-' ? 1 : 0;
    size_t digits = strspn(s + start, "0123456789");
    for (size_t i = digits; i > 3;) {
        i -= 3;
        memmove(s + start + i + 1, s + start + i, strlen(s + start + i) + 1);
        s[start + i] = ',';
    }
}

const char *number_format(double x, char out[NUMBER_BYTES]) { return number_format_digits(x, 4, out); }

const char *number_format_digits(double x, int digits, char out[NUMBER_BYTES])
{
    double a = fabs(x);
    if (!isfinite(x)) {
        strcpy(out, EN_DASH);
    } else if (a == 0) {
        strcpy(out, "0");
    } else if (a < 1e-4 || a >= 1e9) {
        snprintf(out, NUMBER_BYTES, "%.*g", digits < 3 ? digits : 3, x);
    } else {
        char power[NUMBER_BYTES];
        snprintf(power, sizeof power, "%.*e", digits - 1, x); /* the exponent after rounding: 999.96 becomes 1,000 */
        int magnitude = atoi(strchr(power, 'e') + 1);
        int decimals = magnitude >= digits - 1 ? 0 : digits - 1 - magnitude;
        snprintf(out, NUMBER_BYTES, "%.*f", decimals, x);
        if (strchr(out, '.') && x == floor(x)) /* whole numbers stay whole: 32, not 32.00 */
            snprintf(out, NUMBER_BYTES, "%.0f", x);
        group_thousands(out);
    }
    return out;
}

void text_copy(char *out, size_t size, const char *s)
{
    CHECK(size > sizeof ELLIPSIS);
    if (!s)
        s = EN_DASH;
    size_t length = strlen(s);
    if (length < size) {
        memcpy(out, s, length + 1);
        return;
    }
    size_t keep = size - sizeof ELLIPSIS;
    while (keep > 0 && ((unsigned char)s[keep] & 0xc0) == 0x80)
        keep--;
    memcpy(out, s, keep);
    strcpy(out + keep, ELLIPSIS);
}

Status path_join(char *out, size_t size, const char *folder, const char *name)
{
    int n = snprintf(out, size, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= size)
        return status_error(STATUS_INPUT, "path too long (more than %zu bytes): %.100s/%.100s", size - 1, folder, name);
    return status_ok();
}

Status text_write_file(const Text *t, const char *folder, const char *name)
{
    if (t->failed)
        return status_error(STATUS_OOM, "out of memory while composing %s", name);
    char path[PATH_BYTES], temporary[PATH_BYTES + 32];
    TRY(path_join(path, sizeof path, folder, name));
    snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
    FILE *f = fopen(temporary, "wb");
    if (!f)
        return status_error(STATUS_IO, "cannot write %s: %s", path, strerror(errno));
    bool wrote = fwrite(text_bytes(t), 1, t->length, f) == t->length && fflush(f) == 0;
    int error = errno;
    if (fclose(f) != 0 && wrote) {
        wrote = false;
        error = errno;
    }
    if (wrote && rename(temporary, path) != 0) {
        wrote = false;
        error = errno;
    }
    if (!wrote) {
        unlink(temporary);
        return status_error(STATUS_IO, "cannot write %s: %s", path, strerror(error));
    }
    return status_ok();
}

Status text_read_file(Text *t, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return status_error(errno == ENOENT ? STATUS_INPUT : STATUS_IO, "cannot read %s: %s", path, strerror(errno));
    char block[8192];
    size_t n;
    errno = 0;
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        text_add_bytes(t, block, n);
    bool bad = ferror(f) != 0;
    int error = errno;
    fclose(f);
    if (bad)
        return status_error(STATUS_IO, "cannot read %s: %s", path, strerror(error));
    if (t->failed)
        return status_error(STATUS_OOM, "out of memory while reading %s", path);
    return status_ok();
}
