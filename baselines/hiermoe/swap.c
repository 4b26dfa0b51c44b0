#include "baselines/hiermoe/swap.h"

#include <string.h>

#include "reference/base/elementary.h"

void mp_swap_count(const struct mp_swap_tokens *tokens, const int32_t group[], int groups,
                   int32_t memory[], int32_t count[]) {
    int32_t *met = memory; /* [groups] the last token with an expert there, from 1 */
    const int32_t *expert = tokens->expert;
    memset(met, 0, (size_t)groups * sizeof *met);
    memset(count, 0, (size_t)groups * sizeof *count);
    for (int t = 1; t <= tokens->tokens; t++, expert += tokens->top_k)
        for (int j = 0; j < tokens->top_k && expert[j] >= 0; j++) {
            int32_t g = group[expert[j]];
            count[g] += met[g] != t;
            met[g] = t;
        }
}

/* What tokens choose. */
struct choices {
    int32_t *has;    /* [groups] of a token */
    int32_t *chosen; /* [experts] by how many tokens */
    int32_t *alone;  /* [experts] by how many as the only expert of its group */
    int32_t *beside; /* [groups][experts] by how many that have an expert of the group */
};

/* change: at (r, c) tokens that chose both, and r alone of its group. */
static void add_token(const int32_t expert[], int chosen, int experts, const int32_t group[],
                      const struct choices *choices, int32_t change[]) {
    for (int j = 0; j < chosen; j++)
        choices->has[group[expert[j]]] = 0;
    for (int j = 0; j < chosen; j++) {
        int32_t g = group[expert[j]];
        int32_t *beside = choices->beside + (size_t)g * (size_t)experts;
        choices->chosen[expert[j]]++;
        for (int i = 0; choices->has[g] == 0 && i < chosen; i++)
            beside[expert[i]]++;
        choices->has[g]++;
    }
    for (int j = 0; j < chosen; j++) {
        int32_t *both = change + (size_t)expert[j] * (size_t)experts;
        if (choices->has[group[expert[j]]] > 1)
            continue;
        choices->alone[expert[j]]++;
        for (int i = 0; i < chosen; i++)
            both[expert[i]]++;
    }
}

void mp_swap_changes(const struct mp_swap_tokens *tokens, const int32_t group[], int groups,
                     int32_t memory[], int32_t change[]) {
    int experts = tokens->experts;
    size_t count = (size_t)experts;
    const struct choices choices = {memory, memory + groups, memory + groups + count,
                                    memory + groups + 2 * count};
    const int32_t *expert = tokens->expert;
    memset(memory, 0, mp_swap_memory(experts, groups) * sizeof *memory);
    memset(change, 0, count * count * sizeof *change);
    for (int t = 0; t < tokens->tokens; t++, expert += tokens->top_k) {
        int chosen = 0;
        while (chosen < tokens->top_k && expert[chosen] >= 0)
            chosen++;
        add_token(expert, chosen, experts, group, &choices, change);
    }
    for (int r = 0; r < experts; r++, change += count) {
        const int32_t *beside = choices.beside + (size_t)group[r] * count;
        for (int c = 0; c < experts; c++) {
            int32_t gained = choices.chosen[c] - beside[c];
            int32_t changed = change[c] - choices.alone[r] + gained;
            change[c] = group[c] == group[r] ? 0 : changed;
        }
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
