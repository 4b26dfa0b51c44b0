/* What the device's tests share.  Every test runs on every back end there is a registration for
 * (MOEPERF_TEST_DEVICE in the environment): "cpu", on every instruction set of this machine, with
 * one thread and with three; "cuda", on the first GPU or on what stands in for one.  Results are
 * compared with naive double precision, gradients with central differences of that. */
#pragma once

#include <errno.h>

#include "reference/device/cpu/cpu.h"
#include "reference/device/device.h"
#include "tests/errors.h"

static uint64_t random_state;

struct device_test {
    const char *function, *row; /* row NULL: there are none */
    void (*run)(struct mp_device *device, const void *c);
    const void *c;
};

/* The limits that every test keeps to. */
static const struct mp_device_limits test_limits = {
    .attention = {3, 200, 3, 64}, .experts = 1024, .width = 600, .tokens = 4096};

static inline bool on_cuda(const struct mp_device *device) {
    return strcmp(device->operations->name, "cuda") == 0;
}

/* ---- Arrays: of a test, until it ends ---- */

enum { GUARD_BYTES = 256, GUARD = 0xff }; /* NaN, and -1 */

static struct test_array {
    char *memory;
    size_t bytes;
    struct mp_device *device; /* whose host_release it needs; NULL: free */
    bool on_device;           /* release */
} * test_arrays;
static size_t test_array_count;
static struct mp_device *test_device; /* of the test that runs */

static inline void *keep_array(void *memory, size_t bytes, struct mp_device *device) {
    assert_non_null(memory);
    void *larger = realloc(test_arrays, (test_array_count + 1) * sizeof *test_arrays);
    assert_non_null(larger);
    test_arrays = larger;
    test_arrays[test_array_count++] = (struct test_array){memory, bytes, device, false};
    return memory;
}

static inline void *new_on_device(size_t bytes) {
    void *memory = test_device->operations->allocate(test_device, bytes);
    keep_array(memory, bytes, test_device);
    test_arrays[test_array_count - 1].on_device = true;
    return memory;
}

/* Memory that the test and the device can both reach.  For the cpu back end it is plain memory,
 * exactly as long as asked for, so that the address sanitizer sees a row too far.  For others
 * page-locked, which kernels reach at the same address; what is written behind it shows at the
 * test's end. */
static inline void *new_array(size_t bytes) {
    if (!on_cuda(test_device))
        return keep_array(malloc(bytes ? bytes : 1), bytes, NULL);
    char *memory = test_device->operations->host_allocate(test_device, bytes + GUARD_BYTES);
    keep_array(memory, bytes, test_device);
    memset(memory + bytes, GUARD, GUARD_BYTES);
    return memory;
}

/* True if nothing was written behind any. */
static inline bool release_arrays(void) {
    bool whole = true;
    for (size_t i = 0; i < test_array_count; i++) {
        struct test_array *array = &test_arrays[i];
        if (!array->device)
            free(array->memory);
        else if (array->on_device)
            array->device->operations->release(array->device, array->memory);
        if (!array->device || array->on_device)
            continue;
        for (size_t at = 0; at < GUARD_BYTES && whole; at++)
            whole = (unsigned char)array->memory[array->bytes + at] == GUARD;
        if (!whole)
            print_error("something was written behind an array of %zu bytes\n", array->bytes);
        array->device->operations->host_release(array->device, array->memory);
    }
    free(test_arrays);
    test_arrays = NULL;
    test_array_count = 0;
    return whole;
}

static inline float *new_floats(size_t count) {
    float *values = new_array(count * sizeof *values);
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

static inline int32_t *new_ints(size_t count) {
    int32_t *values = new_array(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = -77;
    return values;
}

static inline int32_t *copy_ints(const int32_t *from, size_t count) {
    int32_t *values = new_ints(count);
    memcpy(values, from, count * sizeof *values);
    return values;
}

/* 0 .. count - 1 in any order. */
static inline int32_t *random_permutation(int count) {
    int32_t *values = new_ints((size_t)count);
    for (int i = 0; i < count; i++)
        values[i] = i;
    test_shuffle(&random_state, values, (size_t)count, sizeof *values);
    return values;
}

static inline uint32_t *new_counts(size_t count) {
    return (uint32_t *)new_ints(count);
}

/* The host's alone, zeroed. */
static inline void *new_host(size_t count, size_t size) {
    return keep_array(calloc(count ? count : 1, size), count * size, NULL);
}

static inline double *new_doubles(size_t count) {
    return new_host(count, sizeof(double));
}

static inline double *to_doubles(const float *from, size_t count) {
    double *values = new_doubles(count);
    for (size_t i = 0; i < count; i++)
        values[i] = from[i];
    return values;
}

/* ---- Running ---- */

/* perform(device, add, count, a, b, out): queues the operation and waits for it. */
#define perform(device, operation, ...)                                                            \
    do {                                                                                           \
        (device)->operations->operation((device), NULL, __VA_ARGS__);                              \
        (device)->operations->stream_synchronize((device), NULL);                                  \
    } while (0)

/* Tests are registered by being there, as cases are (tests/cases.h).  DEVICE_EACH: once for each of
 * an array of structures with a `name`; `c` points to it. */
#define DEVICE_TEST(function) DEVICE_TAKING(function, void *unused_, 1, NULL, NULL)
#define DEVICE_EACH(function, rows)                                                                \
    DEVICE_TAKING(function, __typeof__(*(rows)) *c, sizeof(rows) / sizeof *(rows),                 \
                  (rows)[i_].name, &(rows)[i_])
#define DEVICE_TAKING(function, parameter, count, row_name, row)                                   \
    static void function(struct mp_device *device, const parameter);                               \
    static void call_##function(struct mp_device *device, const void *row_) {                      \
        function(device, row_);                                                                    \
    }                                                                                              \
    __attribute__((constructor)) static void add_##function(void) {                                \
        for (size_t i_ = 0; i_ < (count); i_++)                                                    \
            add_device_test((struct device_test){#function, row_name, call_##function, row});      \
    }                                                                                              \
    static void function(UNUSED struct mp_device *device, UNUSED const parameter)

static struct device_test *device_tests;
static size_t device_test_count;

static inline void add_device_test(struct device_test test) {
    void *longer = realloc(device_tests, (device_test_count + 1) * sizeof test);
    if (!longer)
        abort();
    device_tests = longer;
    device_tests[device_test_count++] = test;
}

/* Where the tests of a program run: DEVICE_PROGRAM(...), with its members, is the program's main.
 */
struct device_program {
    const struct mp_device_limits *limits;
    bool has_elements; /* a GPU runs them with bf16, too */
    /* Whether a case runs with such elements; it has a device for itself, of limits that this may
     * change.  NULL: every case does, and shares a GPU's device with the others. */
    bool (*prepare)(const void *c, enum mp_element element, struct mp_device_limits *limits);
};

struct device_run {
    const struct device_test *test;
    const char *instruction_set; /* NULL on cuda */
    int threads;
    enum mp_element element;
    struct mp_device_limits limits;
    bool own; /* device */
    char name[160];
};

static const struct mp_device_limits *shared_limits = &test_limits;

static inline struct mp_device *new_cuda_device(const struct mp_device_limits *limits,
                                                enum mp_element element,
                                                enum mp_grouped_products way) {
    const struct mp_cuda_settings settings = {
        .rank = -1, .element = element, .grouped_products = way};
    struct mp_device *device = NULL;
    assert_works(mp_device_cuda_create(&settings, limits, &device, &error));
    return device;
}

/* One for all tests of a program: creating one takes a GPU some tenths of a second.  Of every
 * way of grouped GEMM. */
enum { GROUPED_WAYS = 3, CUDA_DEVICES = 2 * GROUPED_WAYS };
static struct mp_device *cuda_devices[CUDA_DEVICES];

static inline struct mp_device *cuda_device(enum mp_element element, enum mp_grouped_products way) {
    struct mp_device **device = &cuda_devices[GROUPED_WAYS * (element == MP_BFLOAT16) + (int)way];
    if (!*device)
        *device = new_cuda_device(shared_limits, element, way);
    return *device;
}

static struct mp_device *device_of_run(const struct device_run *run) {
    struct mp_device *device = NULL;
    if (!run->instruction_set)
        return run->own ? new_cuda_device(&run->limits, run->element, MP_GROUPED_AUTO)
                        : cuda_device(run->element, MP_GROUPED_AUTO);
    assert_works(mp_device_cpu_create(run->threads, &run->limits, &device, &error));
    if (!mp_cpu_use_instruction_set(device, run->instruction_set)) {
        mp_device_destroy(device);
        skip("this processor has no %s", run->instruction_set);
    }
    return device;
}

static void run_on_device(void **state) {
    const struct device_run *run = *state;
    test_device = device_of_run(run);
    run->test->run(test_device, run->test->c);
}

/* A failure of the device fails the test; one of the test itself may come from it. */
static int end_of_run(void **state) {
    struct mp_error error = {0};
    if (!test_device)
        return 0;
    for (int i = -1; i < CUDA_DEVICES; i++) {
        struct mp_device *device = i < 0 ? test_device : cuda_devices[i];
        if (!device)
            continue;
        device->operations->stream_synchronize(device, NULL);
        mp_device_check(device, &error);
        device->error = (struct mp_error){0};
    }
    bool failed = error.code != MP_OK;
    if (failed)
        print_error("%s\n", error.text);
    failed = !release_arrays() || failed;
    if (((const struct device_run *)*state)->own)
        mp_device_destroy(test_device);
    test_device = NULL;
    return failed ? -1 : 0;
}

TEST_STEP(destroy_cuda_devices) {
    for (int i = 0; i < CUDA_DEVICES; i++)
        mp_device_destroy(cuda_devices[i]);
    return 0;
}

static inline bool tests_want_cuda(void) {
    const char *wanted = getenv("MOEPERF_TEST_DEVICE");
    return wanted && strcmp(wanted, "cuda") == 0;
}

static inline int run_program(const struct device_program *program) {
    static const char *const sets[] = {"baseline", "avx2", "avx512"};
    enum { SETS = 3, THREADS = 2 };
    const bool on_gpu = tests_want_cuda();
    const size_t places = on_gpu ? 1 + program->has_elements : SETS * THREADS;
    const size_t most = device_test_count * places;
    AUTO(allocated) struct device_run *runs = calloc(most, sizeof *runs);
    AUTO(allocated) struct CMUnitTest *units = calloc(most, sizeof *units);
    size_t count = 0;
    random_state = test_seed();
    shared_limits = program->limits;
    for (size_t i = 0; i < most; i++) {
        const struct device_test *test = &device_tests[i / places];
        size_t place = i % places;
        struct device_run *run = &runs[count];
        *run = (struct device_run){.test = test,
                                   .instruction_set = on_gpu ? NULL : sets[place / THREADS],
                                   .threads = place % THREADS ? 3 : 1,
                                   .element = on_gpu && place ? MP_BFLOAT16 : MP_FLOAT32,
                                   .limits = *program->limits,
                                   .own = !on_gpu || program->prepare};
        if (program->prepare && !program->prepare(test->c, run->element, &run->limits))
            continue;
        snprintf(run->name, sizeof run->name, "%s%s%s (%s", test->function, test->row ? ", " : "",
                 test->row ? test->row : "",
                 on_gpu ? place ? "cuda, bf16)" : "cuda)"
                        : formatted("%s, threads: %d)", run->instruction_set, run->threads));
        units[count++] = (struct CMUnitTest){run->name, run_on_device, NULL, end_of_run, run};
    }
    int failed = _cmocka_run_group_tests(program_invocation_short_name, units, count, NULL,
                                         destroy_cuda_devices);
    return failed;
}

#define DEVICE_PROGRAM(...)                                                                        \
    int main(void) {                                                                               \
        return run_program(&(const struct device_program){__VA_ARGS__});                           \
    }                                                                                              \
    struct device_program

/* ---- Comparing ---- */

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
 * All elements, or about TEST_ROUNDS(samples) random ones where there are more.  The differences
 * are good to 1e-8 or so. */
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
        if (test_random_double(&random_state) * (double)count > (double)TEST_ROUNDS(samples))
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
