/* child.c - fork, exec, collect both outputs, judge the exit. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_NO_PROGRAM = 127, EXIT_NO_FOLDER = 126 };

/* In the child, after fork: only async-signal-safe calls. The alarm survives exec, so a program that hangs is
 * ended by the kernel even if we are gone. */
static void become_program(const Child *child, const int out[2], const int err[2])
{
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(out[1], 1) < 0 || dup2(err[1], 2) < 0)
        _exit(EXIT_NO_FOLDER);
    close(out[0]);
    close(out[1]);
    close(err[0]);
    close(err[1]);
    if (child->folder && chdir(child->folder) != 0)
        _exit(EXIT_NO_FOLDER);
    signal(SIGALRM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    alarm(child->limit_seconds);
    execvp(child->argv[0], (char *const *)(uintptr_t)child->argv);
    _exit(EXIT_NO_PROGRAM);
}

/* Read both pipes until both are closed. */
static void collect(int out_fd, int err_fd, Text *out, Text *err)
{
    struct pollfd fds[2] = { { .fd = out_fd, .events = POLLIN }, { .fd = err_fd, .events = POLLIN } };
    Text *into[2] = { out, err };
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0) {
            if (errno == EINTR)
                continue;
            return;
        }
        for (int i = 0; i < 2; i++) {
            if (fds[i].fd < 0 || !fds[i].revents)
                continue;
            char block[8192];
            ssize_t n = read(fds[i].fd, block, sizeof block);
            if (n > 0 && into[i])
                text_add_bytes(into[i], block, (size_t)n);
            else if (n == 0 || (n < 0 && errno != EINTR))
                fds[i].fd = -1;
        }
    }
}

/* The first line that a program wrote on stderr, in one line, at most 200 bytes. */
static void first_words(const Text *err, char *out, size_t size)
{
    const char *s = text_bytes(err);
    s += strspn(s, " \t\r\n");
    size_t n = strcspn(s, "\r\n");
    /* gnuplot's first line is often the offending command, its second the caret: the words come with "line N:" */
    const char *words = strstr(s, "line ");
    if (words) {
        s = words;
        n = strcspn(s, "\r\n");
    }
    snprintf(out, size, "%.*s", (int)(n < size ? n : size - 1), s);
}

static Status judge(const Child *child, int state, const Text *err)
{
    const char *name = child->argv[0];
    if (WIFSIGNALED(state)) {
        if (WTERMSIG(state) == SIGALRM)
            return status_error(STATUS_BACKEND, "%s did not end within %u s and was stopped", name, child->limit_seconds);
        return status_error(STATUS_BACKEND, "%s was killed by signal %d", name, WTERMSIG(state));
    }
    int code = WEXITSTATUS(state);
    if (code == 0)
        return status_ok();
    if (code == EXIT_NO_PROGRAM)
        return status_error(STATUS_BACKEND, "%s is not installed or not in PATH: apt install %s", name, child->package);
    if (code == EXIT_NO_FOLDER && child->folder)
        return status_error(STATUS_BACKEND, "%s could not be started in %s", name, child->folder);
    char words[200];
    first_words(err, words, sizeof words);
    return status_error(STATUS_BACKEND, "%s failed (exit code %d): %s", name, code, *words ? words : "it said nothing");
}

Status child_run(const Child *child, Text *out, Text *err)
{
    int out_pipe[2], err_pipe[2];
    if (pipe(out_pipe) != 0)
        return status_error(STATUS_IO, "cannot make a pipe for %s: %s", child->argv[0], strerror(errno));
    if (pipe(err_pipe) != 0) {
        Status s = status_error(STATUS_IO, "cannot make a pipe for %s: %s", child->argv[0], strerror(errno));
        close(out_pipe[0]);
        close(out_pipe[1]);
        return s;
    }
    Text own = { 0 };
    if (!err)
        err = &own;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        become_program(child, out_pipe, err_pipe);
    Status s = status_ok();
    if (pid < 0)
        s = status_error(STATUS_IO, "cannot start %s: %s", child->argv[0], strerror(errno));
    close(out_pipe[1]);
    close(err_pipe[1]);
    if (pid > 0) {
        collect(out_pipe[0], err_pipe[0], out, err);
        int state = 0;
        while (waitpid(pid, &state, 0) < 0 && errno == EINTR)
            ;
        s = judge(child, state, err);
    }
    close(out_pipe[0]);
    close(err_pipe[0]);
    text_free(&own);
    return s;
}
