#include "harness/cli/cli.h"

static volatile sig_atomic_t signals;

static void count_signal(int number) {
    (void)number;
    signals = signals + 1;
}

const volatile sig_atomic_t *cli_count_signals(void) {
    struct sigaction action = {.sa_handler = count_signal}; /* no SA_RESTART: poll must return */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &signals;
}
