#include "profiler/record/record.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int64_t mp_clock_thread_cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The second of three numbers: on a core, ready and waiting for one (ns), and turns (Linux,
 * Documentation/scheduler/sched-stats.rst). */
int64_t mp_clock_thread_ready_ns(void) {
    char text[128], *end = NULL;
    int file = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    if (length <= 0)
        return -1;
    text[length] = '\0';
    strtoll(text, &end, 10);
    if (end == text)
        return -1;
    char *second = end;
    long long ready = strtoll(second, &end, 10);
    return end == second ? -1 : ready;
}

void mp_clock_offset(int64_t t0, int64_t t1, int64_t t2, int64_t t3, int64_t *offset_ns,
                     int64_t *round_trip_ns) {
    *offset_ns = ((t1 - t0) + (t2 - t3)) / 2;
    *round_trip_ns = (t3 - t0) - (t2 - t1);
}
