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
    struct mp_cpu *cpu;
    size_t count, grain;
    mp_cpu_range *range;
    const void *arguments;
};

int mp_cpu_thread(void) {
    return omp_get_thread_num();
}

void mp_cpu_pause(struct mp_cpu *cpu) {
    cpu->worked = INT64_MIN / 2; /* no pauses in a pause */
    cpu->device.between(cpu->device.between_context);
    cpu->worked = 0;
}

/* All at once, or with a pause after each grain. */
static void run_range(const struct job *job, size_t begin, size_t end) {
    struct mp_cpu *cpu = job->cpu;
    if (!cpu->device.between || mp_cpu_thread() != 0) {
        job->range(job->arguments, begin, end);
        return;
    }
    for (size_t next; begin < end; begin = next) {
        next = end - begin < 2 * job->grain ? end : begin + job->grain;
        job->range(job->arguments, begin, next);
        mp_cpu_worked(cpu, (int64_t)((next - begin) * MP_CPU_GRAIN / job->grain));
    }
}

static void run_share(void *argument) {
    const struct job *job = argument;
    size_t threads = (size_t)omp_get_num_threads(); /* may be fewer than were asked for */
    size_t thread = (size_t)mp_cpu_thread();
    size_t begin = job->count * thread / threads;
    size_t end = job->count * (thread + 1) / threads;
    if (begin < end)
        run_range(job, begin, end);
}

void mp_cpu_parallel(struct mp_cpu *cpu, size_t count, size_t grain, mp_cpu_range *range,
                     const void *arguments) {
    const struct job job = {cpu, count, grain, range, arguments};
    size_t useful = count / grain;
    size_t threads = useful < (size_t)cpu->threads ? useful : (size_t)cpu->threads;
    if (threads <= 1) {
        if (count)
            run_range(&job, 0, count);
        return;
    }
    GOMP_parallel(run_share, (void *)(uintptr_t)&job, (unsigned)threads, 0);
}

void mp_cpu_use_threads(int threads) {
    /* The setting belongs to the calling thread and anybody may change it between two calls. */
    if (omp_get_max_threads() != threads)
        omp_set_num_threads(threads);
}
