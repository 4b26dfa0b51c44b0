/* Blocks of random tokens. */
#pragma once

#include "harness/workload/trace.h"
#include "reference/plan/routes.h"
#include "tests/errors.h"

/* Draws `tokens` tokens of every rank, whose number of experts is a prime, and counts them. */
static inline void draw_tokens(uint64_t *seed, int tokens, int top_k, bool all_taken,
                               struct mp_load *load) {
    int32_t own[16];
    int experts = load->experts;
    assert_true(load->ranks <= 16);
    for (int r = 0; r < load->ranks; r++)
        own[r] = tokens;
    assert_works(mp_load_give_routes(load, top_k, own, &error));
    memset(load->count, 0, (size_t)load->ranks * (size_t)experts * sizeof *load->count);
    for (int t = 0; t < tokens * load->ranks; t++) {
        int first = test_random_int(seed, 0, experts - 1);
        int stride = test_random_int(seed, 1, experts - 1);
        for (int j = 0; j < top_k; j++) {
            int expert = (first + j * stride) % experts;
            bool taken = all_taken || test_random_int(seed, 0, 5) > 0;
            load->routes->expert[t * top_k + j] = taken ? expert : -1 - expert;
            load->count[t / tokens * experts + expert] += taken;
        }
    }
}
