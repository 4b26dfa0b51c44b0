/* Swaps of experts: what they do to how many tokens every group of ranks gets (HierMoE, HierD-ES).
 *
 * A token with several experts in a group counts there once.  When experts r and c swap places only
 * tokens that chose exactly one of them count differently: one more in the other expert's group if
 * the token has nothing there, one less in the chosen one's if that was its only choice there. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct mp_swap_tokens {
    int tokens, top_k, experts;
    const int32_t *expert; /* [tokens][top_k], -1: fewer */
};

/* Working memory for as many groups: numbers. */
static inline size_t mp_swap_memory(int experts, int groups) {
    return (size_t)groups + (size_t)experts * (2 + (size_t)groups);
}

/* count [groups] = tokens with an expert e in the group, where group [experts] says which it is.
 * memory [mp_swap_memory]. */
void mp_swap_count(const struct mp_swap_tokens *tokens, const int32_t group[], int groups,
                   int32_t memory[], int32_t count[]);

/* change [experts][experts]: at (r, c) by how much the count of r's group changes if r and c swap
 * places; 0 if it is one group.  It loses the tokens that chose r alone of the group, but not c,
 * and gains those that chose c and nothing in the group.  memory [mp_swap_memory].
 * O(tokens * top_k^2 + experts^2). */
void mp_swap_changes(const struct mp_swap_tokens *tokens, const int32_t group[], int groups,
                     int32_t memory[], int32_t change[]);

/* largest * (sum((x / largest)^gamma))^(1 / gamma), with the sum of powers of count x, already
 * taken: nearly the largest x, and less if others come close. */
double mp_swap_power(double count, int gamma);
double mp_swap_smooth_max(double sum_of_powers, int gamma);
