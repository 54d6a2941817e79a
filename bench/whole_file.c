/* whole_file.c - the bodies of whole_file.h. */
#include "whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Status whole_file_error(const char *doing, const char *path, int error)
{
    size_t length = strlen(path), shown = 360; /* the end of a long path tells more, and the reason must fit as well */
    bool   cut = length > shown;
    return status_error(error == ENOMEM ? STATUS_OOM : STATUS_IO, "cannot %s %s%s: %s", doing, cut ? "..." : "",
                        cut ? path + length - shown : path, strerror(error));
}

static char *join(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    char *text = malloc(na + nb + 1);
    if (text) {
        memcpy(text, a, na);
        memcpy(text + na, b, nb + 1);
    }
    return text;
}

static void free_names(WholeFile *f)
{
    free(f->path);
    free(f->temporary);
    *f = (WholeFile){ 0 };
}

Status whole_file_open(const char *path, WholeFile *out)
{
    *out = (WholeFile){ .path = join(path, ""), .temporary = join(path, ".tmp") };
    if (!out->path || !out->temporary) {
        free_names(out);
        return whole_file_error("write", path, ENOMEM);
    }
    unlink(out->temporary); /* left by a killed run; a new file cannot be a link to somewhere else */
    int fd = open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0)
        out->to = fdopen(fd, "w");
    if (out->to)
        return status_ok();
    Status s = whole_file_error("write", out->temporary, errno);
    if (fd >= 0) {
        close(fd);
        unlink(out->temporary);
    }
    free_names(out);
    return s;
}

/* The rename itself must survive a power cut too. Not every file system can sync a folder: best effort. */
static void sync_folder_of(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash)
        slash[slash == path] = '\0';
    int fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

Status whole_file_close(WholeFile *f, Status written)
{
    Status s = written;
    if (s.code == STATUS_OK && fflush(f->to) != 0)
        s = whole_file_error("write", f->path, errno);
    if (s.code == STATUS_OK && ferror(f->to))
        s = status_error(STATUS_IO, "cannot write %s", f->path);
    if (s.code == STATUS_OK && fsync(fileno(f->to)) != 0 && errno != EINVAL && errno != ENOSYS)
        s = whole_file_error("write", f->path, errno); /* a full disk may show only here */
    if (fclose(f->to) != 0 && s.code == STATUS_OK)
        s = whole_file_error("write", f->path, errno);
    if (s.code == STATUS_OK && rename(f->temporary, f->path) != 0)
        s = whole_file_error("replace", f->path, errno);
    if (s.code == STATUS_OK)
        sync_folder_of(f->path);
    else
        unlink(f->temporary);
    free_names(f);
    return s;
}
