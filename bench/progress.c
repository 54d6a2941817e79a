/* progress.c - the bodies of progress.h. On a terminal one line is rewritten in place; in a log, a line now and then. */
#include "progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE_BYTES = 512, DEFAULT_COLUMNS = 80 };

void progress_start(Progress *p, bool enabled)
{
    const char *term = getenv("TERM");
    p->enabled = enabled;
    p->terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    p->interval = p->terminal ? 0.2 : 10;
    p->started = clock_seconds();
    p->last_print = p->started - p->interval; /* the first update is shown at once */
}

static size_t terminal_columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : DEFAULT_COLUMNS;
}

/* At most `columns` characters; UTF-8 stays whole. */
static void cut_line(char *line, size_t columns)
{
    char *at = line;
    for (size_t n = 0; *at; at++)
        if (((unsigned char)*at & 0xC0) != 0x80 && n++ == columns)
            break;
    *at = '\0';
}

void progress_update(Progress *p, double done, const char *format, ...)
{
    double now = clock_seconds();
    if (!p->enabled || !(done >= 1 || now - p->last_print >= p->interval))
        return;
    p->last_print = now;

    char line[LINE_BYTES], left[48] = "", text[LINE_BYTES - 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7F)
            *c = ' '; /* one line, whatever a file name holds */
    if (done > 0 && done < 1) {
        char duration[32];
        snprintf(left, sizeof left, "%3.0f %%, %s left: ", floor(100 * done),
                 progress_duration((now - p->started) * (1 - done) / done, duration, sizeof duration));
    } else if (done >= 1) {
        snprintf(left, sizeof left, "100 %%: ");
    } else if (done <= 0) {
        snprintf(left, sizeof left, "  0 %%: ");
    }
    snprintf(line, sizeof line, "%s%s", left, text);
    if (p->terminal) {
        cut_line(line, terminal_columns() - 1);
        fprintf(stderr, "\r%s\033[K", line); /* the escape clears what a longer line left (ECMA-48, EL) */
    } else {
        fprintf(stderr, "%s\n", line);
    }
    fflush(stderr);
}

void progress_end(Progress *p)
{
    if (p->enabled && p->terminal) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
}

const char *progress_duration(double seconds, char *text, size_t size)
{
    if (!(seconds >= 0 && seconds < 1e9)) {
        snprintf(text, size, "unknown time");
        return text;
    }
    long s = (long)(seconds + 0.5), m = (s + 30) / 60; /* hours are told to the minute */
    if (s < 60)
        snprintf(text, size, "%ld s", s);
    else if (s < 3600)
        snprintf(text, size, "%ld min %02ld s", s / 60, s % 60);
    else
        snprintf(text, size, "%ld h %02ld min", m / 60, m % 60);
    return text;
}
