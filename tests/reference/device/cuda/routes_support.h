/* What the tests of gate, routes and permutation share: device memory between guards, random
 * choices, and a table of cases that run for both types of elements. */
#ifndef MOEPERF_TESTS_REFERENCE_DEVICE_CUDA_ROUTES_SUPPORT_H
#define MOEPERF_TESTS_REFERENCE_DEVICE_CUDA_ROUTES_SUPPORT_H

#include <float.h>

#include "tests/reference/device/cuda/cuda_support.h"

/* ---- Arrays: values on the host, and device memory between guards ---- */

enum { GUARD_BYTES = 64, GUARD = 0xa5 };

/* Device memory of `bytes`, `shift` bytes behind an aligned address. */
struct placed {
    char *base, *at;
    size_t bytes, shift;
};

static inline struct placed place(struct mp_device *device, size_t bytes, size_t shift) {
    size_t whole = GUARD_BYTES + shift + bytes + GUARD_BYTES;
    char *fill = malloc(whole);
    struct placed placed = {device->operations->allocate(device, whole), NULL, bytes, shift};
    assert_non_null(fill);
    assert_non_null(placed.base);
    memset(fill, GUARD, whole);
    device->operations->copy_from_host(device, NULL, placed.base, fill, whole);
    free(fill);
    placed.at = placed.base + GUARD_BYTES + shift;
    return placed;
}

static inline struct placed send(struct mp_device *device, const void *host, size_t bytes,
                                 size_t shift) {
    struct placed placed = place(device, bytes, shift);
    device->operations->copy_from_host(device, NULL, placed.at, host, bytes);
    return placed;
}

/* What is there now; nothing was written in front of it or behind it.  The memory is given back.
 * Not inlined, or gcc warns of sizes near SIZE_MAX, which no case has. */
__attribute__((noinline, unused)) static void *take(struct mp_device *device,
                                                    struct placed *placed) {
    size_t front = GUARD_BYTES + placed->shift, whole = front + placed->bytes + GUARD_BYTES;
    unsigned char *all = malloc(whole);
    assert_non_null(all);
    device->operations->copy_to_host(device, NULL, all, placed->base, whole);
    for (size_t i = 0; i < whole; i++)
        if ((i < front || i >= front + placed->bytes) && all[i] != GUARD)
            fail_msg("byte %zu of %zu was written, %zu is the first", i, whole, front);
    memmove(all, all + front, placed->bytes);
    device->operations->release(device, placed->base);
    return all;
}

static inline void drop(struct mp_device *device, struct placed *placed) {
    device->operations->release(device, placed->base);
}

/* `count` values of the type, rounded to it in place. */
static inline struct placed send_elements(struct mp_device *device, enum mp_element type,
                                          float *value, size_t count, size_t shift) {
    if (type == MP_FLOAT32)
        return send(device, value, 4 * count, 4 * shift);
    uint16_t *narrow = malloc(2 * count + 2);
    assert_non_null(narrow);
    for (size_t i = 0; i < count; i++) {
        narrow[i] = to_bfloat16(value[i]);
        value[i] = from_bfloat16(narrow[i]);
    }
    struct placed placed = send(device, narrow, 2 * count, 2 * shift);
    free(narrow);
    return placed;
}

static inline float *take_elements(struct mp_device *device, enum mp_element type,
                                   struct placed *placed) {
    size_t count = placed->bytes / bytes_of(type, 1);
    void *raw = take(device, placed);
    if (type == MP_FLOAT32)
        return raw;
    float *value = malloc(4 * count + 4);
    assert_non_null(value);
    for (size_t i = 0; i < count; i++)
        value[i] = from_bfloat16(((uint16_t *)raw)[i]);
    free(raw);
    return value;
}

static inline float *random_values(size_t count, double scale) {
    float *value = malloc((count + 1) * sizeof *value);
    assert_non_null(value);
    for (size_t i = 0; i < count; i++)
        value[i] = (float)(scale * (2 * test_random_double(&random_state) - 1));
    return value;
}

/* Distinct choices of every token. */
static inline int32_t *random_choices(int tokens, int experts, int top_k) {
    int32_t *choice = malloc(((size_t)tokens * (size_t)top_k + 1) * sizeof *choice);
    assert_non_null(choice);
    for (int i = 0; i < tokens * top_k; i++) {
        choice[i] = test_random_int(&random_state, 0, experts - 1);
        for (int j = i / top_k * top_k; j < i; j++)
            if (choice[j] == choice[i]) {
                i--; /* once more */
                break;
            }
    }
    return choice;
}

/* -1 for one in four, else anything from 0. */
static inline int32_t *random_positions(int count) {
    int32_t *position = malloc(((size_t)count + 1) * sizeof *position);
    assert_non_null(position);
    for (int i = 0; i < count; i++)
        position[i] = test_random_int(&random_state, 0, 3) ? i : -1;
    return position;
}

static inline void free_all(void *memory[], size_t count) {
    for (size_t i = 0; i < count; i++)
        free(memory[i]);
}
#define FREE(...)                                                                                  \
    free_all((void *[]){__VA_ARGS__}, sizeof((void *[]){__VA_ARGS__}) / sizeof(void *))

static inline void assert_near(double actual, double expected, double tolerance, const char *what,
                               int64_t at) {
    if (!(fabs(actual - expected) <= tolerance) && !(isnan(actual) && isnan(expected)))
        fail_msg("%s %lld is %.9g, expected %.9g within %.3g", what, (long long)at, actual,
                 expected, tolerance);
}

/* The operation must have failed so; what it failed with is forgotten. */
static inline void assert_failed(struct mp_device *device, int code) {
    struct mp_error error = {0};
    device->operations->stream_synchronize(device, NULL);
    assert_int_equal(mp_device_check(device, &error), code);
    assert_true(strlen(error.text) > 20);
    device->error = (struct mp_error){0};
}

/* ---- Running ---- */

enum case_kind {
    PLAIN,
    TIES,
    FORCED,
    NOT_NUMBERS,
    ONE_EXPERT,
    SURVIVORS,
    NO_WEIGHT,
    IN_PLACE,
    EXACT
};

struct test_case {
    const char *name;
    void (*run)(struct mp_device *device, const struct test_case *c);
    int tokens, experts, top_k;
    enum case_kind kind;
    int shift; /* elements from an aligned address to where matrices start */
    int width;
    enum mp_route_sort sort;
};

static const struct mp_device_limits route_limits = {
    .attention = {1, 4, 1, 8}, .experts = 1024, .width = 600, .tokens = 12000};

struct case_run {
    const struct test_case *c;
    enum mp_element element;
    char name[160];
};

/* One for all cases of a type of elements. */
static struct mp_device *case_device[2];

static inline void run_case(void **state) {
    const struct case_run *run = *state;
    struct mp_device **device = &case_device[run->element == MP_BFLOAT16];
    const struct mp_cuda_settings settings = {.rank = 2, .element = run->element};
    struct mp_error error = {0};
    if (!*device && mp_device_cuda_create(&settings, &route_limits, device, &error))
        fail_msg("%s", error.text);
    (*device)->error = (struct mp_error){0};
    run->c->run(*device, run->c);
    (*device)->operations->stream_synchronize(*device, NULL);
    if (mp_device_check(*device, &error))
        fail_msg("%s", error.text);
}

static inline int destroy_devices(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++)
        mp_device_destroy(case_device[i]);
    return 0;
}

static inline int run_cases(const char *group, const struct test_case cases[], size_t count) {
    enum { MOST = 200 };
    static struct case_run runs[MOST];
    static struct CMUnitTest tests[MOST];
    random_state = test_seed();
    for (size_t i = 0; i < 2 * count && i < MOST; i++) {
        runs[i].c = &cases[i / 2];
        runs[i].element = i % 2 ? MP_BFLOAT16 : MP_FLOAT32;
        snprintf(runs[i].name, sizeof runs[i].name, "%s (%s)", cases[i / 2].name,
                 i % 2 ? "bf16" : "fp32");
        tests[i] = (struct CMUnitTest){runs[i].name, run_case, NULL, NULL, &runs[i]};
    }
    if (2 * count > MOST)
        return 1;
    return _cmocka_run_group_tests(group, tests, 2 * count, NULL, destroy_devices);
}

#endif
