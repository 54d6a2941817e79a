/* scratch.c - the bodies of scratch.h. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "scratch.h"

#include <dirent.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATH_BYTES = 4096 };

int scratch_setup(void **state)
{
    /* in memory where there is such a folder: tests that save a thousand times wait for no disk */
    const char *pattern = access("/dev/shm", W_OK) == 0 ? "/dev/shm/batchmark-test-XXXXXX" : "/tmp/batchmark-test-XXXXXX";
    char       *path = malloc(strlen(pattern) + 1);
    if (!path)
        return -1;
    strcpy(path, pattern);
    *state = path;
    return mkdtemp(path) ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}

int scratch_teardown(void **state)
{
    int failed = nftw(*state, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return failed;
}

const char *scratch_path(const char *folder, const char *name)
{
    static char paths[4][PATH_BYTES];
    static int  next;
    char       *path = paths[next++ % 4];
    assert_true(snprintf(path, PATH_BYTES, "%s/%s", folder, name) < PATH_BYTES);
    return path;
}

void scratch_write(const char *path, const char *text, size_t length)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, length, f), length);
    assert_int_equal(fclose(f), 0);
}

char *scratch_read(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f)
        fail_msg("%s cannot be opened", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long size = ftell(f);
    assert_true(size >= 0);
    rewind(f);
    char *text = malloc((size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, f), (size_t)size);
    text[size] = '\0';
    fclose(f);
    return text;
}

int scratch_entries(const char *path)
{
    DIR *d = opendir(path);
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}
