/* documents.c - whole files in memory, and the list of texts that readers fill. */
#include "files.h"
#include "text_source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MOST = 1 << 30 };

Status file_read(const char *dir, const char *name, FileBytes *out)
{
    memset(out, 0, sizeof *out);
    out->path = name ? dataset_join_path(dir, name, NULL) : malloc(strlen(dir) + 1);
    if (!out->path)
        return status_error(STATUS_OOM, "text: no memory for a path");
    if (!name)
        strcpy(out->path, dir);
    Bytes bytes = { NULL, 0 };
    Status status = dataset_read_file(out->path, FILE_MOST, &bytes);
    out->bytes = (char *)bytes.data;
    out->length = bytes.size;
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
