/* interrupt.c - the one mutable global of the program: a signal handler has nowhere else to write. */
#include "interrupt.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t requested;

static void on_signal(int number)
{
    if (requested && number == SIGINT) {
        signal(number, SIG_DFL);
        raise(number);
    }
    requested = 1;
}

void interrupt_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

Status interrupt_check(void)
{
    return requested ? status_error(STATUS_INTERRUPTED, "interrupted") : status_ok();
}
