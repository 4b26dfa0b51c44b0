#include "reference/trainer/signals.h"

#include <pthread.h>
#include <signal.h>

static struct {
    pthread_mutex_t lock; /* of trainer */
    struct mp_trainer *trainer;
    pthread_t thread;
    bool watches;
} signals = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void list_signals(sigset_t *set) {
    struct sigaction before;
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    if (!sigaction(SIGHUP, NULL, &before) && before.sa_handler != SIG_IGN)
        sigaddset(set, SIGHUP);
}

void mp_signals_hold(void) {
    sigset_t set;
    list_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static bool ask_trainer(void) {
    pthread_mutex_lock(&signals.lock);
    bool asked = signals.trainer != NULL;
    if (asked)
        mp_trainer_request_stop(signals.trainer);
    pthread_mutex_unlock(&signals.lock);
    return asked;
}

static void *wait_for_signals(void *context) {
    sigset_t set;
    int number = 0;
    (void)context;
    list_signals(&set);
    while (!sigwait(&set, &number)) {
        int state;
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
        if (!ask_trainer()) { /* ends the program with the signal's own status */
            pthread_sigmask(SIG_UNBLOCK, &set, NULL);
            raise(number);
        }
        pthread_setcancelstate(state, NULL);
    }
    return NULL;
}

int mp_signals_watch(struct mp_error *error) {
    signals.watches = !pthread_create(&signals.thread, NULL, wait_for_signals, NULL);
    if (!signals.watches)
        return mp_fail(error, MP_ENOMEM, "no thread that waits for signals could be made");
    return MP_OK;
}

void mp_signals_stop(struct mp_trainer *trainer) {
    pthread_mutex_lock(&signals.lock);
    signals.trainer = trainer;
    pthread_mutex_unlock(&signals.lock);
}

void mp_signals_end(void) {
    if (!signals.watches)
        return;
    pthread_cancel(signals.thread);
    pthread_join(signals.thread, NULL);
    signals.watches = false;
}
