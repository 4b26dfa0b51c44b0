/* Threads.
 *
 * oneDNN is built with gcc's OpenMP, so its threads are those of libgomp.  This file speaks to
 * the same runtime through its own entry points, the ones that gcc compiles `omp parallel` to,
 * instead of through pragmas: clang would turn pragmas into calls of a second runtime with a
 * second pool of threads, and the number set here would not reach oneDNN. */
#include "reference/device/cpu/cpu.h"

extern void GOMP_parallel(void (*body)(void *), void *argument, unsigned threads, unsigned flags);
extern int omp_get_max_threads(void);
extern int omp_get_num_threads(void);
extern int omp_get_thread_num(void);
extern void omp_set_num_threads(int threads);

struct job {
    size_t count;
    mp_cpu_range *range;
    const void *arguments;
};

static void run_share(void *argument) {
    const struct job *job = argument;
    size_t threads = (size_t)omp_get_num_threads(); /* may be fewer than were asked for */
    size_t thread = (size_t)omp_get_thread_num();
    size_t begin = job->count * thread / threads;
    size_t end = job->count * (thread + 1) / threads;
    if (begin < end)
        job->range(job->arguments, begin, end, (int)thread);
}

void mp_cpu_parallel(struct mp_cpu *cpu, size_t count, size_t grain, mp_cpu_range *range,
                     const void *arguments) {
    size_t useful = count / (grain ? grain : 1);
    size_t threads = useful < (size_t)cpu->threads ? useful : (size_t)cpu->threads;
    if (threads <= 1) {
        if (count)
            range(arguments, 0, count, 0);
        return;
    }
    struct job job = {count, range, arguments};
    GOMP_parallel(run_share, &job, (unsigned)threads, 0);
}

void mp_cpu_use_threads(int threads) {
    /* The setting belongs to the calling thread and anybody may change it between two calls. */
    if (omp_get_max_threads() != threads)
        omp_set_num_threads(threads);
}
