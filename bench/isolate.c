/* isolate.c - fork, a pipe with one JSON document, wait; see isolate.h. */
#include "isolate.h"

#include "interrupt.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_UP_MS = 100 }; /* how often to look for an interrupt while the child works */

/* The child's side: {"code": n, "text": "...", "result": value or null}. */
static int child_main(IsolatedFunction *function, void *context, int fd)
{
    json_t *result = NULL;
    Status status = function(context, &result);
    if (status.code != STATUS_OK || !result) {
        json_decref(result);
        result = json_null();
    }
    json_t *message = json_pack("{s:i,s:s,s:o}", "code", (int)status.code, "text", status.text, "result", result);
    int failed = !message || json_dumpfd(message, fd, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(message);
    close(fd);
    return failed ? 1 : 0;
}

static Status child_died(int wait_status)
{
    if (!WIFSIGNALED(wait_status))
        return status_error(STATUS_BACKEND, "the process that ran it ended with exit code %d and no result", WEXITSTATUS(wait_status));
    int number = WTERMSIG(wait_status);
    if (number == SIGKILL)
        return status_error(STATUS_OOM, "the process that ran it was killed, most likely by the kernel for lack of memory");
    return status_error(STATUS_BACKEND, "the process that ran it crashed: %s (signal %d)", strsignal(number), number);
}

/* Everything the child writes until it ends. An interrupt of this process alone (kill, not Ctrl-C) is passed on to the child,
 * which then ends in its own time and in good order. */
static Status read_all(int fd, pid_t child, char **bytes, size_t *length)
{
    size_t capacity = 0;
    bool told = false;
    struct pollfd ready = { .fd = fd, .events = POLLIN };
    *bytes = NULL;
    *length = 0;
    for (;;) {
        if (!told && interrupt_check().code != STATUS_OK) {
            kill(child, SIGTERM);
            told = true;
        }
        /* Not read() at once: a signal that comes just before it would not end it. */
        int come = poll(&ready, 1, LOOK_UP_MS);
        if (come == 0 || (come < 0 && errno == EINTR))
            continue;
        if (*length == capacity) {
            capacity = capacity ? 2 * capacity : 65536;
            char *more = realloc(*bytes, capacity);
            if (!more)
                return status_error(STATUS_OOM, "out of memory for the result of a measurement");
            *bytes = more;
        }
        ssize_t n = read(fd, *bytes + *length, capacity - *length);
        if (n == 0)
            return status_ok();
        if (n > 0)
            *length += (size_t)n;
        else if (errno != EINTR)
            return status_error(STATUS_IO, "cannot read the result of a measurement: %s", strerror(errno));
    }
}

static Status read_message(json_t *message, json_t **result)
{
    int code = 0;
    const char *text = "";
    json_t *value = NULL;
    if (json_unpack(message, "{s:i,s:s,s:o}", "code", &code, "text", &text, "result", &value) || code < 0 || code >= STATUS_CODE_COUNT)
        return status_error(STATUS_BACKEND, "the process that ran it sent a message that makes no sense");
    if (code != STATUS_OK)
        return status_error((StatusCode)code, "%s", text);
    *result = json_incref(value);
    return status_ok();
}

Status isolate_run(IsolatedFunction *function, void *context, json_t **result)
{
    *result = NULL;
    int ends[2];
    if (pipe(ends))
        return status_error(STATUS_IO, "cannot make a pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        int error = errno;
        close(ends[0]);
        close(ends[1]);
        return status_error(error == ENOMEM ? STATUS_OOM : STATUS_IO, "cannot start a process: %s", strerror(error));
    }
    if (pid == 0) {
        close(ends[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody would read the result */
        int code = child_main(function, context, ends[1]);
        fflush(NULL);
        _exit(code);
    }
    close(ends[1]);
    char *bytes;
    size_t length;
    Status status = read_all(ends[0], pid, &bytes, &length);
    close(ends[0]);
    int wait_status = 0;
    while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
        ;
    if (status.code == STATUS_OK) {
        json_error_t error;
        json_t *message = length ? json_loadb(bytes, length, 0, &error) : NULL;
        status = message ? read_message(message, result) : child_died(wait_status);
        json_decref(message);
    }
    free(bytes);
    return status;
}
