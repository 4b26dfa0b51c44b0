/* What the device's tests share: every test runs on every instruction set of this machine, with one
 * thread and with three; results are compared with naive double precision, gradients with central
 * differences of that. */
#ifndef MOEPERF_TESTS_REFERENCE_DEVICE_DEVICE_SUPPORT_H
#define MOEPERF_TESTS_REFERENCE_DEVICE_DEVICE_SUPPORT_H

#include <string.h>

#include "reference/device/cpu/cpu.h"
#include "reference/device/device.h"
#include "tests/support.h"

static uint64_t random_state;

struct device_test {
    const char *name;
    /* `c` is the row's case. */
    void (*run)(struct mp_device *device, const void *c);
    const void *c;
};

/* The limits that every test keeps to. */
static const struct mp_device_limits test_limits = {
    .attention = {3, 200, 3, 64}, .experts = 1024, .width = 600, .tokens = 4096};

struct device_run {
    const struct device_test *test;
    const char *instruction_set;
    int threads;
    char name[160];
};

static void run_on_device(void **state) {
    const struct device_run *run = *state;
    struct mp_error error = {0};
    struct mp_device *device = NULL;
    assert_int_equal(mp_device_cpu_create(run->threads, &test_limits, &device, &error), MP_OK);
    if (!mp_cpu_use_instruction_set(device, run->instruction_set)) {
        mp_device_destroy(device);
        print_message("this processor has no %s\n", run->instruction_set);
        skip();
    }
    run->test->run(device, run->test->c);
    if (mp_device_check(device, &error))
        fail_msg("%s", error.text);
    mp_device_destroy(device);
}

static int run_device_tests(const char *group, const struct device_test tests[], size_t count) {
    static const char *const sets[] = {"baseline", "avx2", "avx512"};
    static const int threads[] = {1, 3};
    enum { SETS = 3, THREADS = 2, MOST = 240 };
    static struct device_run runs[MOST];
    static struct CMUnitTest unit_tests[MOST];
    size_t n = 0;
    random_state = test_seed();
    for (size_t t = 0; t < count; t++) {
        for (int i = 0; i < SETS * THREADS && n < MOST; i++, n++) {
            struct device_run *run = &runs[n];
            run->test = &tests[t];
            run->instruction_set = sets[i / THREADS];
            run->threads = threads[i % THREADS];
            snprintf(run->name, sizeof run->name, "%s (%s, threads: %d)", tests[t].name,
                     run->instruction_set, run->threads);
            unit_tests[n] = (struct CMUnitTest){run->name, run_on_device, NULL, NULL, (void *)run};
        }
    }
    if (n < count * SETS * THREADS)
        return 1;
    return _cmocka_run_group_tests(group, unit_tests, n, NULL, NULL);
}

/* Arrays.  Device memory of a cpu device is plain memory, and exactly as long as asked for, so that
 * the address sanitizer sees a row too far. */
static inline float *new_floats(size_t count) {
    float *values = malloc(count ? count * sizeof *values : 1);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = NAN; /* an operation that reads its output shows */
    return values;
}

static inline float *random_floats(size_t count, double scale) {
    float *values = new_floats(count);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(scale * (2 * test_random_double(&random_state) - 1));
    return values;
}

static inline float *copy_floats(const float *from, size_t count) {
    float *values = new_floats(count);
    memcpy(values, from, count * sizeof *values);
    return values;
}

static inline double *new_doubles(size_t count) {
    double *values = calloc(count ? count : 1, sizeof *values);
    assert_non_null(values);
    return values;
}

static inline double *to_doubles(const float *from, size_t count) {
    double *values = new_doubles(count);
    for (size_t i = 0; i < count; i++)
        values[i] = from[i];
    return values;
}

static inline int32_t *new_ints(size_t count) {
    int32_t *values = malloc(count ? count * sizeof *values : 1);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = -77;
    return values;
}

/* |actual - expected| <= tolerance * the largest |expected| of the whole array. */
#define assert_floats_close(actual, expected, count, tolerance)                                    \
    floats_close((actual), (expected), (count), (tolerance), #actual, __FILE__, __LINE__)

static inline void floats_close(const float *actual, const double *expected, size_t count,
                                double tolerance, const char *text, const char *file, int line) {
    double largest = 1e-30;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(expected[i]));
    for (size_t i = 0; i < count; i++) {
        if (fabs(actual[i] - expected[i]) <= tolerance * largest)
            continue;
        print_error("%s[%zu] is %.9g, expected %.9g; tolerance %.3g of %.3g\n", text, i,
                    (double)actual[i], expected[i], tolerance, largest);
        _fail(file, line);
    }
}

/* Of fourth order: LayerNorm of a few nearly equal values bends too much for the plain one. */
static inline double central_difference(double (*loss)(const void *), const void *context,
                                        double *variable) {
    const double step = 1e-4, value = *variable;
    double at[5];
    for (int i = 0; i < 5; i++) {
        *variable = value + (i - 2) * step;
        at[i] = i == 2 ? 0 : loss(context);
    }
    *variable = value;
    return (8 * (at[3] - at[1]) - (at[4] - at[0])) / (12 * step);
}

/* Compares a gradient with central differences of `loss`, a function of the doubles in `variable`.
 * All elements, or about `samples` random ones where there are more.  The differences are good to
 * 1e-8 or so. */
#define assert_gradient(loss, context, variable, count, gradient, samples, tolerance)              \
    gradient_close((loss), (context), (variable), (count), (gradient), (samples), (tolerance),     \
                   #gradient, __FILE__, __LINE__)

static inline void gradient_close(double (*loss)(const void *), const void *context,
                                  double *variable, size_t count, const float *gradient,
                                  size_t samples, double tolerance, const char *text,
                                  const char *file, int line) {
    double largest = 1e-30;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)gradient[i]));
    for (size_t i = 0; i < count; i++) {
        if (test_random_double(&random_state) * (double)count > (double)samples)
            continue;
        double expected = central_difference(loss, context, &variable[i]);
        if (fabs(gradient[i] - expected) <= tolerance * largest)
            continue;
        print_error("%s[%zu] is %.9g, differences say %.9g; tolerance %.3g of %.3g\n", text, i,
                    (double)gradient[i], expected, tolerance, largest);
        _fail(file, line);
    }
}

static inline double dot_doubles(const double *a, const double *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

#endif
