/* Processes: the family of a started job, from /proc. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Sends `signal` to all descendants of `root`, and to `root` itself if `with_root`; when root has
 * no descendants it gets the signal in any case.  Returns how many processes got it. */
int mp_processes_signal(pid_t root, int signal, bool with_root);

/* Whether a process of this number runs here that had begun when the wall clock showed
 * `realtime_ns`: the one that wrote both down, and none that got its number later. */
bool mp_processes_runs_since(pid_t pid, int64_t realtime_ns);

/* Processes that are signalled again and again: handles, which never mean another process. */
struct mp_processes {
    int *handle; /* [count] owned */
    int count;
    int leaves; /* of them without children */
};

/* Those that mp_processes_signal would reach now.  Fewer where the system has no such handles
 * (Linux before 5.3).  Release it in any case. */
void mp_processes_hold(pid_t root, bool with_root, struct mp_processes *processes);
void mp_processes_send(const struct mp_processes *processes, int signal);
void mp_processes_release(struct mp_processes *processes); /* accepts a zeroed one */
