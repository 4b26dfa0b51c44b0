/* A generation of loads by the dynamics, as tests of them start it. */
#ifndef MOEPERF_TESTS_HARNESS_WORKLOAD_DYNAMICS_H
#define MOEPERF_TESTS_HARNESS_WORKLOAD_DYNAMICS_H

#include "harness/workload/generate.h"
#include "tests/support.h"

static inline struct mp_generation *start(const struct mp_generate_options *options,
                                          struct mp_load *load) {
    struct mp_error error = {0};
    struct mp_generation *generation = NULL;
    const struct mp_generator *kind = mp_generator_find("dynamics", &error);
    if (mp_generation_create(kind, options, &generation, &error) ||
        mp_load_create(options->ranks, options->experts, load, &error))
        fail_msg("%s", error.text);
    return generation;
}

#endif
