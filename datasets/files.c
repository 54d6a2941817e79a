/* files.c - the bodies of files.h. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *dataset_shown_path(const char *path)
{
    enum { SHOWN = 300 };
    size_t length = strlen(path);
    return length <= SHOWN ? path : path + (length - SHOWN);
}

Status dataset_file_error(const char *path, int system_error)
{
    char words[128];
    if (strerror_r(system_error, words, sizeof words) != 0)
        snprintf(words, sizeof words, "error %d", system_error);
    bool absent = system_error == ENOENT || system_error == ENOTDIR;
    return status_error(absent ? STATUS_INPUT : STATUS_IO, "%s: %s", dataset_shown_path(path), words);
}

char *dataset_join_path(const char *dir, const char *name, const char *last)
{
    size_t bytes = strlen(dir) + strlen(name) + (last ? strlen(last) + 1 : 0) + 2;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s/%s%s%s", dir, name, last ? "/" : "", last ? last : "");
    return path;
}

static Status read_descriptor(int file, const char *path, int64_t most, Bytes *out)
{
    struct stat info;
    if (fstat(file, &info) != 0)
        return dataset_file_error(path, errno);
    if (!S_ISREG(info.st_mode))
        return status_error(STATUS_INPUT, "%s: not a regular file", dataset_shown_path(path));
    if (info.st_size <= 0 || info.st_size > most)
        return status_error(STATUS_INPUT, "%s: file size %lld bytes, expected 1..%lld", dataset_shown_path(path),
                            (long long)info.st_size, (long long)most);
    out->size = (size_t)info.st_size;
    out->data = malloc(out->size);
    if (!out->data)
        return status_error(STATUS_OOM, "%s: no memory for a file of %zu bytes", dataset_shown_path(path), out->size);
    for (size_t have = 0; have < out->size;) {
        ssize_t n = read(file, out->data + have, out->size - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return dataset_file_error(path, errno);
        if (n == 0)
            return status_error(STATUS_INPUT, "%s: shrank while it was read", dataset_shown_path(path));
        have += (size_t)n;
    }
    return status_ok();
}

Status dataset_read_file(const char *path, int64_t most, Bytes *out)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not hang it */
    if (file < 0)
        return dataset_file_error(path, errno);
    Status status = read_descriptor(file, path, most, out);
    close(file);
    return status;
}
