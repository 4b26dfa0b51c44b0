/* Child: a started job as its parent sees it, for launch.c and time_slices.c. */
#ifndef MOEPERF_HARNESS_SUITE_CHILD_H
#define MOEPERF_HARNESS_SUITE_CHILD_H

#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

#include "harness/suite/launch.h"

enum { MP_CHILD_LINE_SIZE = 256, MP_CHILD_TICK_MS = 100, MP_CHILD_DESCRIPTORS = 2 };

struct mp_child {
    const struct mp_launch *launch; /* borrowed */
    pid_t pid;
    int output;                    /* read end of its standard output; -1 after its end */
    char line[MP_CHILD_LINE_SIZE]; /* the beginning of a line whose end has not come yet */
    size_t length;
    bool is_skipping; /* the rest of a line that was too long */
    int errors;       /* read end of its standard error; -1 after its end */
    int log;          /* file that it goes to; -1: none */
    char *tail;       /* its last bytes, a string, owned */
    size_t tail_length;
    struct mp_launch_progress progress;
    double begin, end, watched; /* s */
    double stopped;             /* s that it was stopped, which don't count for its time-out */
    int status;                 /* waitpid's, once it has ended */
    /* How it is being ended from outside, if it is. */
    enum mp_launch_end ending; /* COMPLETE: nobody asked it to end */
    double kill_at;            /* s; 0: not set */
    int signals_before;        /* that had come before the job */
};

/* Errors: mp_launch_run's; nothing is to be ended then. */
int mp_child_start(const struct mp_launch *launch, struct mp_child *child, struct mp_error *error);

/* What poll has to wait for. */
void mp_child_poll(const struct mp_child *child, struct pollfd ready[MP_CHILD_DESCRIPTORS]);

/* Reads what has come, shows it, ends a job that takes too long or that the user stops.  Whether
 * the job has ended. */
bool mp_child_attend(struct mp_child *child);

/* After the job's end: says how it ended and frees what the child had. */
void mp_child_finish(struct mp_child *child, struct mp_launch_result *result);

#endif
