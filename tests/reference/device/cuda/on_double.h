/* What tests of the cuda back end ask of the double of CUDA (tests/double/cuda) where the library
 * that they load is built on it.  On a GPU what it would show stays unseen: the rest of a test is
 * the same, and links nothing of the double, whose functions would take the place of CUDA's. */
#pragma once

#include <dlfcn.h>
#include <stdlib.h>

#include "tests/double/cuda/double.h"

/* A function of the double, NULL on a GPU. */
static inline void *of_double(const char *function) {
    const char *path = getenv("MOEPERF_CUDA_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    return library ? dlsym(library, function) : NULL;
}

static inline bool on_double(void) {
    return of_double("cuda_double_get_counts") != NULL;
}

/* All zeros on a GPU. */
static inline struct cuda_double_counts double_counts(void) {
    struct cuda_double_counts counts = {0};
    void (*get)(struct cuda_double_counts * counts);
    *(void **)&get = of_double("cuda_double_get_counts");
    if (get)
        get(&counts);
    return counts;
}

static inline void delay_streams(int microseconds) {
    void (*set)(int microseconds);
    *(void **)&set = of_double("cuda_double_set_delay");
    if (set)
        set(microseconds);
}

/* Blocks and threads run in another order; on a GPU they take what order they like. */
static inline void reorder_blocks(uint64_t seed) {
    void (*set)(uint64_t seed);
    *(void **)&set = of_double("cuda_double_set_seed");
    if (set)
        set(seed);
}
