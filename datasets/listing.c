/* listing.c - the bodies of listing.h. */
#include "listing.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

Status listing_no_memory(void)
{
    return status_error(STATUS_OOM, "no memory for the list of images");
}

/* ---- lists of names ---- */

void names_free(Names *names)
{
    for (int64_t i = 0; i < names->count; i++)
        free(names->item[i]);
    free(names->item);
    *names = (Names){ NULL, 0, 0 };
}

Status names_take(Names *names, char *name)
{
    if (name && names->count == names->capacity) {
        int64_t capacity = names->capacity ? 2 * names->capacity : 16;
        char **item = realloc(names->item, (size_t)capacity * sizeof *item);
        if (!item) {
            free(name);
            return listing_no_memory();
        }
        names->item = item;
        names->capacity = capacity;
    }
    if (!name)
        return listing_no_memory();
    names->item[names->count++] = name;
    return status_ok();
}

static char *copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* ---- directories ---- */

static bool is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool has_image_suffix(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0 || strcasecmp(dot, ".png") == 0);
}

/* *is_one: is dir/name a directory? (Through symbolic links.) */
static Status ask_directory(const char *dir, const char *name, bool *is_one)
{
    char *path = dataset_join_path(dir, name, NULL);
    if (!path)
        return listing_no_memory();
    *is_one = is_directory(path);
    free(path);
    return status_ok();
}

static Status list_entries(DIR *handle, const char *dir, bool directories, Names *out)
{
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(handle);
        if (!entry && errno != 0)
            return dataset_file_error(dir, errno);
        if (!entry)
            return status_ok();
        bool wanted = entry->d_name[0] != '.';
        if (wanted && directories)
            TRY(ask_directory(dir, entry->d_name, &wanted));
        else if (wanted)
            wanted = has_image_suffix(entry->d_name);
        if (wanted)
            TRY(names_take(out, copy_text(entry->d_name)));
    }
}

Status list_directory(const char *dir, bool directories, Names *out)
{
    DIR *handle = opendir(dir);
    if (!handle)
        return errno == ENOMEM ? listing_no_memory() : dataset_file_error(dir, errno);
    Status status = list_entries(handle, dir, directories, out);
    closedir(handle);
    if (status.code == STATUS_OK && out->count > 1)
        qsort(out->item, (size_t)out->count, sizeof *out->item, compare_names);
    return status;
}

/* ---- layouts ---- */

Status list_split_roots(const char *dir, char *roots[SPLIT_COUNT], bool *two)
{
    struct stat info;
    if (stat(dir, &info) != 0)
        return dataset_file_error(dir, errno);
    if (!S_ISDIR(info.st_mode))
        return dataset_file_error(dir, ENOTDIR);
    bool train = false, val = false, test = false;
    TRY(ask_directory(dir, "train", &train));
    TRY(ask_directory(dir, "val", &val));
    TRY(ask_directory(dir, "test", &test));
    if (train != (val || test))
        return status_error(STATUS_INPUT, "%s: holds '%s' but no '%s'", dataset_shown_path(dir),
                            train ? "train" : val ? "val" : "test", train ? "val' or 'test" : "train");
    *two = train;
    roots[SPLIT_TRAIN] = train ? dataset_join_path(dir, "train", NULL) : copy_text(dir);
    roots[SPLIT_TEST] = train ? dataset_join_path(dir, val ? "val" : "test", NULL) : copy_text(dir);
    return roots[SPLIT_TRAIN] && roots[SPLIT_TEST] ? status_ok() : listing_no_memory();
}

int64_t list_test_share(int64_t n)
{
    return n < 2 ? 0 : n < 10 ? 1 : n / 10;
}
