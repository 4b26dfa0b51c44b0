#include "baselines/hiermoe/swap.h"

#include <stddef.h>
#include <string.h>

#include "reference/base/elementary.h"

static void count_choices(const int32_t expert[], int top_k, const int32_t group[], int groups,
                          int32_t has[]) {
    memset(has, 0, (size_t)groups * sizeof *has);
    for (int j = 0; j < top_k && expert[j] >= 0; j++)
        has[group[expert[j]]]++;
}

void mp_swap_count(const struct mp_swap_tokens *tokens, const int32_t group[], int groups,
                   int32_t count[]) {
    memset(count, 0, (size_t)groups * sizeof *count);
    const int32_t *expert = tokens->expert;
    for (int t = 0; t < tokens->tokens; t++, expert += tokens->top_k)
        for (int j = 0; j < tokens->top_k && expert[j] >= 0; j++) {
            int first = 0;
            while (group[expert[first]] != group[expert[j]])
                first++;
            count[group[expert[j]]] += first == j;
        }
}

static void add_token(const struct mp_swap_tokens *tokens, const int32_t expert[],
                      const int32_t group[], const int32_t has[], int32_t change[]) {
    size_t experts = (size_t)tokens->experts;
    for (int j = 0; j < tokens->top_k && expert[j] >= 0; j++) {
        int32_t chosen = expert[j], own = group[chosen];
        for (int32_t other = 0; other < tokens->experts; other++) {
            if (group[other] == own)
                continue;
            change[(size_t)chosen * experts + (size_t)other] -= has[own] == 1;
            change[(size_t)other * experts + (size_t)chosen] += has[group[other]] == 0;
        }
        for (int i = 0; i < tokens->top_k && expert[i] >= 0; i++) { /* who chose both stays */
            int32_t other = expert[i];
            if (group[other] == own)
                continue;
            change[(size_t)chosen * experts + (size_t)other] += has[own] == 1;
            change[(size_t)other * experts + (size_t)chosen] -= has[group[other]] == 0;
        }
    }
}

void mp_swap_changes(const struct mp_swap_tokens *tokens, const int32_t group[], int groups,
                     int32_t has[], int32_t change[]) {
    size_t experts = (size_t)tokens->experts;
    const int32_t *expert = tokens->expert;
    memset(change, 0, experts * experts * sizeof *change);
    for (int t = 0; t < tokens->tokens; t++, expert += tokens->top_k) {
        count_choices(expert, tokens->top_k, group, groups, has);
        add_token(tokens, expert, group, has, change);
    }
}

double mp_swap_power(double count, int gamma) {
    double power = 1;
    for (; gamma > 0; gamma--)
        power *= count;
    return power;
}

double mp_swap_smooth_max(double sum_of_powers, int gamma) {
    return sum_of_powers > 0 ? mp_elementary_power(sum_of_powers, 1.0 / gamma) : 0;
}
