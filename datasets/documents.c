/* documents.c - whole files in memory, and the list of texts that readers fill. */
#include "source.h"
#include "text_source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MOST = 1 << 30 };

static Status read_open_file(FILE *handle, FileBytes *out)
{
    const char *shown = dataset_shown_path(out->path);
    struct stat info;
    if (fstat(fileno(handle), &info) != 0)
        return dataset_file_error(out->path, errno);
    if (!S_ISREG(info.st_mode))
        return status_error(STATUS_INPUT, "%s: not a file", shown);
    if (info.st_size < 1 || info.st_size > FILE_MOST)
        return status_error(STATUS_INPUT, "%s: %" PRId64 " bytes long, expected 1..%d", shown, (int64_t)info.st_size,
                            FILE_MOST);
    size_t bytes = (size_t)info.st_size;
    out->bytes = malloc(bytes + 1);
    if (!out->bytes)
        return status_error(STATUS_OOM, "%s: no memory for %zu bytes", shown, bytes);
    out->length = fread(out->bytes, 1, bytes, handle);
    out->bytes[out->length] = '\0';
    if (out->length != bytes)
        return ferror(handle) ? dataset_file_error(out->path, errno)
                              : status_error(STATUS_INPUT, "%s: ends after %zu of %zu bytes", shown, out->length,
                                             bytes);
    return status_ok();
}

Status file_read(const char *dir, const char *name, FileBytes *out)
{
    memset(out, 0, sizeof *out);
    size_t bytes = strlen(dir) + (name ? strlen(name) + 1 : 0) + 1;
    out->path = malloc(bytes);
    if (!out->path)
        return status_error(STATUS_OOM, "text: no memory for a path");
    snprintf(out->path, bytes, "%s%s%s", dir, name ? "/" : "", name ? name : "");
    FILE *handle = fopen(out->path, "rb");
    if (!handle)
        return dataset_file_error(out->path, errno);
    Status status = read_open_file(handle, out);
    fclose(handle);
    return status;
}

void file_free(FileBytes *file)
{
    free(file->path);
    free(file->bytes);
    memset(file, 0, sizeof *file);
}

Status documents_add(Documents *d, const char *bytes, size_t length)
{
    int64_t needed = d->length + (int64_t)length;
    if (needed > d->capacity) {
        int64_t wanted = needed + d->capacity + 4096;
        char *grown = realloc(d->bytes, (size_t)wanted);
        if (!grown)
            return status_error(STATUS_OOM, "text: no memory for %" PRId64 " bytes of text", wanted);
        d->bytes = grown;
        d->capacity = wanted;
    }
    if (length > 0)
        memcpy(d->bytes + d->length, bytes, length);
    d->length = needed;
    return status_ok();
}

Status documents_end(Documents *d, int32_t label)
{
    int64_t start = documents_start(d, d->count), at = start;
    while (at < d->length && d->bytes[at] == ' ')
        at++;
    if (at == d->length) {
        d->length = start;
        return status_ok();
    }
    TRY(grow_array((void **)&d->end, d->count, &d->ends, sizeof *d->end));
    TRY(grow_array((void **)&d->label, d->count, &d->labels, sizeof *d->label));
    d->end[d->count] = d->length;
    d->label[d->count++] = label;
    return status_ok();
}

void documents_free(Documents *d)
{
    free(d->bytes);
    free(d->end);
    free(d->label);
    memset(d, 0, sizeof *d);
}
