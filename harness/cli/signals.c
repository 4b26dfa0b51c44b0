#include "harness/cli/cli.h"
#include "reference/base/whole_file.h"

static volatile sig_atomic_t signals;

struct waiting {
    const struct mp_store *store;
    sig_atomic_t signals; /* that had come before */
    bool is_said;
};

static void count_signal(int number) {
    if (number != SIGHUP || signals == 0)
        signals = signals + 1;
}

static bool is_ignored(int number) {
    struct sigaction now;
    return !sigaction(number, NULL, &now) && now.sa_handler == SIG_IGN;
}

const volatile sig_atomic_t *cli_count_signals(void) {
    struct sigaction action = {.sa_handler = count_signal}; /* no SA_RESTART: poll must return */
    sigemptyset(&action.sa_mask);
    if (!is_ignored(SIGHUP))
        sigaction(SIGHUP, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &signals;
}

static bool waits(void *context, double seconds) {
    static const double said_after = 0.3, most = 60;
    struct waiting *waiting = context;
    if (seconds == 0)
        *waiting = (struct waiting){.store = waiting->store, .signals = signals};
    if (seconds >= said_after && !waiting->is_said)
        fprintf(stderr, "moeperf: %s: another program has it locked; waiting up to %g s\n",
                mp_store_path(waiting->store), most);
    waiting->is_said = seconds >= said_after;
    return seconds < most && signals == waiting->signals;
}

void cli_wait_for_lock(struct mp_store *store) {
    static struct waiting waiting;
    waiting.store = store;
    mp_store_set_patience(store, waits, &waiting);
}

/* Its action is the usual one again (SA_RESETHAND), which ends the program. */
static void end(int number) {
    mp_whole_files_abandon();
    raise(number);
}

void cli_leave_nothing_at_signals(void) {
    static const int ends[] = {SIGHUP, SIGINT, SIGTERM};
    struct sigaction action = {.sa_handler = end, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (!is_ignored(ends[i]))
            sigaction(ends[i], &action, NULL);
}
