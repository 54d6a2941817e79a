/* The progress line: rewritten in place on a terminal, plain lines in a log, nothing when it is off. */
#define _XOPEN_SOURCE 700 /* posix_openpt */
#include "bench/progress.h"

#include "scratch.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- stderr goes somewhere else for a while ---- */

static int divert_stderr(int to)
{
    fflush(stderr);
    int before = dup(STDERR_FILENO);
    assert_true(before >= 0 && to >= 0);
    assert_int_equal(dup2(to, STDERR_FILENO), STDERR_FILENO);
    return before;
}

static void restore_stderr(int before)
{
    fflush(stderr);
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(before);
}

typedef void Scene(void);

/* What the scene prints into a file: no terminal. The caller frees it. */
static char *print_to_file(const char *folder, Scene *scene)
{
    const char *path = scratch_path(folder, "stderr");
    int         file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600), before = divert_stderr(file);
    scene();
    restore_stderr(before);
    close(file);
    return scratch_read(path);
}

/* What the scene prints on a terminal of so many columns; false if there are no pseudo-terminals here. */
static bool print_to_terminal(int columns, Scene *scene, char *text, size_t size)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        return false;
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (terminal < 0)
        return false;
    struct winsize shape = { .ws_row = 24, .ws_col = (unsigned short)columns };
    ioctl(terminal, TIOCSWINSZ, &shape);
    setenv("TERM", "xterm", 1);
    int before = divert_stderr(terminal);
    scene();
    restore_stderr(before);
    size_t        filled = 0;
    struct pollfd more = { .fd = master, .events = POLLIN };
    while (filled < size - 1 && poll(&more, 1, 200) == 1) { /* it comes in pieces */
        ssize_t n = read(master, text + filled, size - 1 - filled);
        if (n <= 0)
            break;
        filled += (size_t)n;
    }
    text[filled] = '\0';
    close(terminal);
    close(master);
    return true;
}

/* ---- scenes ---- */

static void many_updates(void)
{
    Progress p;
    progress_start(&p, true);
    for (int i = 0; i <= 1000; i++)
        progress_update(&p, i / 1000.0, "cell %d of 1000", i);
    progress_end(&p);
}

static void off(void)
{
    Progress p;
    progress_start(&p, false);
    progress_update(&p, 1, "not to be seen");
    progress_end(&p);
}

static void half_after_an_hour(void)
{
    Progress p;
    progress_start(&p, true);
    p.started -= 3600;
    progress_update(&p, 0.5, "half");
}

static void unknown_end(void)
{
    Progress p;
    progress_start(&p, true);
    progress_update(&p, (double)NAN, "searching");
}

static void line_break_in_text(void)
{
    Progress p;
    progress_start(&p, true);
    progress_update(&p, 1, "a\nb\tc\033[2J%s", "d");
    progress_end(&p);
}

static void long_text(void)
{
    Progress p;
    progress_start(&p, true);
    progress_update(&p, (double)NAN, "123456789 \xc3\xa4\xc3\xb6\xc3\xbc 23456789 123456789");
}

static void two_intervals(void)
{
    Progress p;
    progress_start(&p, true);
    p.interval = 0.02;
    progress_update(&p, 0.1, "first");
    progress_update(&p, 0.2, "too soon");
    struct timespec pause = { .tv_nsec = 30000000 };
    nanosleep(&pause, NULL);
    progress_update(&p, 0.3, "later");
}

/* ---- tests ---- */

static void a_log_gets_few_plain_lines(void **state)
{
    char *text = print_to_file(*state, many_updates);
    assert_string_equal(text, "  0 %: cell 0 of 1000\n100 %: cell 1000 of 1000\n");
    free(text);
}

static void off_is_silent(void **state)
{
    char *text = print_to_file(*state, off);
    assert_string_equal(text, "");
    free(text);
}

static void time_left_follows_from_time_gone(void **state)
{
    char *text = print_to_file(*state, half_after_an_hour);
    assert_string_equal(text, " 50 %, 1 h 00 min left: half\n");
    free(text);
}

static void an_unknown_end_shows_no_time(void **state)
{
    char *text = print_to_file(*state, unknown_end);
    assert_string_equal(text, "searching\n");
    free(text);
}

static void text_stays_on_one_line(void **state)
{
    char *text = print_to_file(*state, line_break_in_text);
    assert_string_equal(text, "100 %: a b c [2Jd\n");
    free(text);
}

static void the_interval_is_kept(void **state)
{
    char *text = print_to_file(*state, two_intervals);
    assert_non_null(strstr(text, "first\n"));
    assert_null(strstr(text, "too soon"));
    assert_non_null(strstr(text, "later\n"));
    free(text);
}

static void a_terminal_line_is_rewritten_and_cleared(void **state)
{
    (void)state;
    char text[8192];
    if (!print_to_terminal(80, many_updates, text, sizeof text))
        skip();
    assert_null(strchr(text, '\n'));
    assert_non_null(strstr(text, "\r  0 %: cell 0 of 1000\033[K"));
    assert_non_null(strstr(text, "\r100 %: cell 1000 of 1000\033[K"));
    size_t n = strlen(text);
    assert_true(n > 4 && strcmp(text + n - 4, "\r\033[K") == 0);
}

static void a_narrow_terminal_is_not_overrun(void **state)
{
    (void)state;
    char text[256];
    if (!print_to_terminal(13, long_text, text, sizeof text))
        skip();
    assert_string_equal(text, "\r123456789 \xc3\xa4\xc3\xb6\033[K"); /* 12 columns, no half character */
}

static void durations_read_well(void **state)
{
    (void)state;
    static const struct { double seconds; const char *text; } cases[] = {
        { 0, "0 s" },          { 12.4, "12 s" },      { 59.6, "1 min 00 s" },   { 200, "3 min 20 s" },       { 3599, "59 min 59 s" },
        { 3599.7, "1 h 00 min" }, { 3720, "1 h 02 min" }, { 7199, "2 h 00 min" }, { 360000, "100 h 00 min" }, { -1, "unknown time" },
        { (double)NAN, "unknown time" }, { (double)INFINITY, "unknown time" },
    };
    char text[32];
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_string_equal(progress_duration(cases[i].seconds, text, sizeof text), cases[i].text);
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(a_log_gets_few_plain_lines),
        IN_SCRATCH(off_is_silent),
        IN_SCRATCH(time_left_follows_from_time_gone),
        IN_SCRATCH(an_unknown_end_shows_no_time),
        IN_SCRATCH(text_stays_on_one_line),
        IN_SCRATCH(the_interval_is_kept),
        cmocka_unit_test(a_terminal_line_is_rewritten_and_cleared),
        cmocka_unit_test(a_narrow_terminal_is_not_overrun),
        cmocka_unit_test(durations_read_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
