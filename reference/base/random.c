#include "reference/base/random.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

uint64_t mp_random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
    return mp_random_splitmix(mp_random_splitmix(mp_random_splitmix(seed) ^ stream) ^ index);
}

uint64_t mp_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t bound) {
    return (uint64_t)(((unsigned __int128)mp_random_bits(seed, stream, index) * bound) >> 64);
}

/* Elements begin .. end of a matrix out [...][columns], row by row. */
struct draw {
    uint64_t seed, stream;
    float deviation;
    size_t first, stride, columns, begin, end;
    float *out;
};

static void draw_row(const struct draw *draw, size_t first, size_t count, float *out) {
    const double unit = 1.0 / 9007199254740992.0; /* 2^-53 */
    const uint64_t seed = draw->seed, stream = draw->stream;
    for (size_t i = first - first % 2; i < first + count; i += 2) {
        /* (0, 1]: the logarithm must not meet zero. */
        double u = (double)((mp_random_bits(seed, stream, i) >> 11) + 1) * unit;
        double angle = 2 * M_PI * (double)(mp_random_bits(seed, stream, i + 1) >> 11) * unit;
        double radius = draw->deviation * sqrt(-2 * log(u));
        if (i >= first)
            out[i - first] = (float)(radius * cos(angle));
        if (i + 1 < first + count)
            out[i + 1 - first] = (float)(radius * sin(angle));
    }
}

static void *draw_elements(void *argument) {
    const struct draw *draw = argument;
    for (size_t at = draw->begin, count; at < draw->end; at += count) {
        size_t row = at / draw->columns, column = at % draw->columns;
        count = draw->columns - column;
        count = count < draw->end - at ? count : draw->end - at;
        draw_row(draw, draw->first + row * draw->stride + column, count, draw->out + at);
    }
    return NULL;
}

/* A number takes 20 to 30 ns, a thread some tens of microseconds. */
enum { LEAST_OF_A_THREAD = 1 << 15, MOST_THREADS = 256 };

static size_t threads_for(size_t count) {
    cpu_set_t cores;
    size_t most = sched_getaffinity(0, sizeof cores, &cores) ? 1 : (size_t)CPU_COUNT(&cores);
    most = most < MOST_THREADS ? most : MOST_THREADS;
    return count / LEAST_OF_A_THREAD < most ? count / LEAST_OF_A_THREAD : most;
}

void mp_random_normal_rows(uint64_t seed, uint64_t stream, float deviation, size_t first,
                           size_t stride, size_t rows, size_t columns, float *out) {
    pthread_t thread[MOST_THREADS];
    bool started[MOST_THREADS] = {false};
    struct draw draw[MOST_THREADS];
    size_t count = rows * columns, threads = threads_for(count), begin = 0;
    threads = threads > 1 ? threads : 1;
    for (size_t t = 0; t < threads; t++) {
        size_t end = count / threads * (t + 1) + count % threads * (t + 1) / threads;
        draw[t] = (struct draw){seed, stream, deviation, first, stride, columns, begin, end, out};
        begin = end;
        /* The last is this thread's, with those that no other can be had for. */
        started[t] =
            t + 1 < threads && pthread_create(&thread[t], NULL, draw_elements, &draw[t]) == 0;
        if (!started[t])
            draw_elements(&draw[t]);
    }
    for (size_t t = 0; t < threads; t++)
        if (started[t])
            pthread_join(thread[t], NULL);
}

void mp_random_normal(uint64_t seed, uint64_t stream, float deviation, size_t count, float *out) {
    mp_random_normal_rows(seed, stream, deviation, 0, count, 1, count, out);
}
