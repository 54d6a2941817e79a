/* report_files.c - the bodies of report_files.h. */
#include "report_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

int make_scratch(void **state)
{
    static const char pattern[] = "/tmp/test_report_XXXXXX";
    char *path = malloc(sizeof pattern);
    assert_non_null(path);
    *state = strcpy(path, pattern);
    assert_non_null(mkdtemp(path));
    return 0;
}

int remove_scratch(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", (char *)*state);
    int rc = system(command);
    free(*state);
    return rc;
}

const char *at(void **state, const char *name, char out[NAME_BYTES])
{
    assert_int_equal(path_join(out, NAME_BYTES, *state, name).code, STATUS_OK);
    return out;
}

void write_file(const char *path, const char *content, mode_t mode)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(content, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

bool exists(const char *folder, const char *name)
{
    char path[NAME_BYTES];
    assert_int_equal(path_join(path, sizeof path, folder, name).code, STATUS_OK);
    return access(path, F_OK) == 0;
}

Text read_in(const char *folder, const char *name)
{
    char path[NAME_BYTES];
    assert_int_equal(path_join(path, sizeof path, folder, name).code, STATUS_OK);
    Text t = { 0 };
    Status s = text_read_file(&t, path);
    if (s.code != STATUS_OK)
        fail_msg("%s", s.text);
    return t;
}

size_t each_file(const char *folder, const char *ending, void (*visit)(const char *folder, const char *name))
{
    size_t count = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        size_t n = strlen(e->d_name), m = strlen(ending);
        if (e->d_name[0] == '.' || n < m || strcmp(e->d_name + n - m, ending) != 0)
            continue;
        if (visit)
            visit(folder, e->d_name);
        count++;
    }
    closedir(d);
    return count;
}

const char *inside(const char *folder, const char *name, char out[NAME_BYTES])
{
    assert_int_equal(path_join(out, NAME_BYTES, folder, name).code, STATUS_OK);
    return out;
}

const ReportOptions quiet_svg = { .quiet = true, .no_png = true };

void write_ok(const char *record, const char *out, const ReportOptions *options)
{
    Status s = report_write(record, out, options);
    if (s.code != STATUS_OK)
        fail_msg("report_write: %s: %s", status_code_name(s.code), s.text);
}

void write_part(const char *path, bool cells, bool trainings, bool claims)
{
    json_t *record = json_load_file(FIXTURE, 0, NULL);
    assert_non_null(record);
    if (!cells)
        json_object_set_new(record, "cells", json_array());
    if (!trainings)
        json_object_set_new(record, "trainings", json_array());
    if (!claims)
        json_object_set_new(record, "claims", json_array());
    assert_int_equal(json_dump_file(record, path, 0), 0);
    json_decref(record);
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

void holds_no_nan(const char *folder, const char *name)
{
    static const char *const words[] = { "nan", "inf", "null", "infinity" };
    Text t = read_in(folder, name);
    for (size_t i = 0; i < t.length; i++) {
        if (i && (is_letter(t.bytes[i - 1]) || t.bytes[i - 1] == '_'))
            continue;
        for (size_t k = 0; k < COUNT_OF(words); k++) {
            size_t n = strlen(words[k]);
            if (strncasecmp(t.bytes + i, words[k], n) == 0 && !is_letter(t.bytes[i + n]))
                fail_msg("%s/%s holds \"%.40s\"", folder, name, t.bytes + (i > 10 ? i - 10 : 0));
        }
    }
    text_free(&t);
}

void is_no_temporary(const char *folder, const char *name)
{
    if (strstr(name, ".tmp"))
        fail_msg("left behind: %s/%s", folder, name);
}

void holds(const Text *t, const char *what)
{
    if (!strstr(text_bytes(t), what))
        fail_msg("not in the file: %s", what);
}

void lacks(const Text *t, const char *what)
{
    if (strstr(text_bytes(t), what))
        fail_msg("in the file, but must not be: %s", what);
}
