#include "baselines/moetuner/clusters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/plan/load.h"

void mp_clusters_create(struct mp_arena *memory, int experts, int clusters,
                        struct mp_clusters *state) {
    *state =
        (struct mp_clusters){.experts = experts, .clusters = clusters, .size = experts / clusters};
    MP_TAKE_EACH(memory, experts, state->order, state->member);
    MP_TAKE_EACH(memory, clusters, state->count, state->label, state->total);
    MP_TAKE(memory, state->first, experts + 1);
}

static void count_totals(struct mp_clusters *state, const int64_t load[], const int32_t cluster[]) {
    memset(state->total, 0, (size_t)state->clusters * sizeof *state->total);
    memset(state->count, 0, (size_t)state->clusters * sizeof *state->count);
    for (int e = 0; e < state->experts; e++) {
        int c = cluster[e];
        state->total[c] += load[e];
        state->member[c * state->size + state->count[c]++] = e;
    }
}

int64_t mp_clusters_deviation(struct mp_clusters *state, const int64_t load[],
                              const int32_t cluster[]) {
    int64_t sum = 0, deviation = 0;
    count_totals(state, load, cluster);
    for (int c = 0; c < state->clusters; c++)
        sum += state->total[c];
    for (int c = 0; c < state->clusters; c++)
        deviation += llabs(state->total[c] * state->clusters - sum);
    return deviation;
}

/* What the first `k` experts in order, which share clusters with the last ones, have beyond the
 * mean (`sign` 1) or lack (-1), in as many clusters as make it least. */
static int64_t excess_of_first(const struct mp_clusters *state, int k, int sign) {
    int clusters = state->clusters, size = state->size;
    int64_t sum = state->first[state->experts], least = INT64_MAX;
    for (int j = (k + size - 1) / size; j <= clusters && j <= k; j++) {
        int others = j * size - k;
        int64_t load = state->first[k] + sum - state->first[state->experts - others];
        int64_t excess = sign * (load * clusters - sum * j);
        least = excess < least ? excess : least;
    }
    return least;
}

int64_t mp_clusters_bound(struct mp_clusters *state, const int64_t load[]) {
    int experts = state->experts;
    int64_t bound = 0;
    mp_load_hottest(load, experts, experts, state->order);
    for (int sign = 1; sign >= -1; sign -= 2) {
        state->first[0] = 0;
        for (int i = 0; i < experts; i++) {
            int32_t expert = state->order[sign > 0 ? i : experts - 1 - i];
            state->first[i + 1] = state->first[i] + load[expert];
        }
        for (int k = 1; k <= experts; k++) {
            int64_t excess = 2 * excess_of_first(state, k, sign);
            bound = excess > bound ? excess : bound;
        }
    }
    int64_t left = state->first[experts] % state->clusters;
    int64_t uneven = 2 * left * (state->clusters - left);
    return uneven > bound ? uneven : bound;
}

/* Numbers clusters by their heaviest experts; needs the order. */
static void number_clusters(struct mp_clusters *state, int32_t cluster[]) {
    int32_t numbered = 0;
    for (int c = 0; c < state->clusters; c++)
        state->label[c] = -1;
    for (int i = 0; i < state->experts; i++) {
        int32_t *label = &state->label[cluster[state->order[i]]];
        *label = *label < 0 ? numbered++ : *label;
        cluster[state->order[i]] = *label;
    }
}

/* The swap between two clusters that leaves the least difference of their loads. */
static bool swap_members(struct mp_clusters *state, const int64_t load[], int one, int other,
                         int32_t cluster[]) {
    int32_t *mine = &state->member[one * state->size],
            *theirs = &state->member[other * state->size];
    int64_t difference = state->total[one] - state->total[other], least = llabs(difference);
    int from = -1, to = -1;
    for (int i = 0; i < state->size && least > 0; i++)
        for (int j = 0; j < state->size; j++) {
            int64_t left = llabs(difference - 2 * (load[mine[i]] - load[theirs[j]]));
            if (left < least) {
                least = left;
                from = i;
                to = j;
            }
        }
    if (from < 0)
        return false;
    int32_t leaves = mine[from], comes = theirs[to];
    int64_t moved = load[leaves] - load[comes];
    state->total[one] -= moved;
    state->total[other] += moved;
    mine[from] = comes;
    theirs[to] = leaves;
    cluster[leaves] = other;
    cluster[comes] = one;
    return true;
}

void mp_clusters_search(struct mp_clusters *state, const int64_t load[], int32_t cluster[]) {
    int clusters = state->clusters;
    memset(state->total, 0, (size_t)clusters * sizeof *state->total);
    memset(state->count, 0, (size_t)clusters * sizeof *state->count);
    mp_load_hottest(load, state->experts, state->experts, state->order);
    for (int i = 0; i < state->experts; i++) {
        int32_t expert = state->order[i], lightest = -1;
        for (int c = 0; c < clusters; c++)
            if (state->count[c] < state->size &&
                (lightest < 0 || state->total[c] < state->total[lightest]))
                lightest = c;
        cluster[expert] = lightest;
        state->total[lightest] += load[expert];
        state->count[lightest]++;
    }
    count_totals(state, load, cluster);
    for (bool better = true; better;) {
        better = false;
        for (int one = 0; one < clusters; one++)
            for (int other = one + 1; other < clusters; other++)
                better |= swap_members(state, load, one, other, cluster);
    }
    number_clusters(state, cluster);
}

/* ---- the program ---- */

/* x of the i-th heaviest expert is column i * clusters + c; behind them what clusters have above
 * the mean. */
static void add_columns(const struct mp_clusters *state, struct mp_program *program) {
    for (int i = 0; i < state->experts; i++)
        for (int c = 0; c < state->clusters; c++)
            mp_program_column(program, 0, c <= i ? 1 : 0, 0, true);
    for (int c = 0; c < state->clusters; c++)
        mp_program_column(program, 0, MP_PROGRAM_NONE, 2, false);
}

static void add_rows(const struct mp_clusters *state, const int64_t load[], int64_t sum,
                     int64_t bound, struct mp_program *program) {
    int experts = state->experts, clusters = state->clusters;
    for (int i = 0; i < experts; i++) {
        mp_program_row(program, 1, 1);
        for (int c = 0; c < clusters; c++)
            mp_program_term(program, i * clusters + c, 1);
    }
    for (int c = 0; c < clusters; c++) {
        mp_program_row(program, state->size, state->size);
        for (int i = 0; i < experts; i++)
            mp_program_term(program, i * clusters + c, 1);
        mp_program_row(program, -(double)sum / clusters, MP_PROGRAM_NONE);
        mp_program_term(program, experts * clusters + c, 1);
        for (int i = 0; i < experts; i++)
            mp_program_term(program, i * clusters + c, -(double)load[state->order[i]]);
    }
    mp_program_row(program, (double)bound / clusters, MP_PROGRAM_NONE);
    for (int c = 0; c < clusters; c++)
        mp_program_term(program, experts * clusters + c, 2);
}

static void write_start(struct mp_clusters *state, const int64_t load[], int64_t sum,
                        const int32_t cluster[], double value[]) {
    int experts = state->experts, clusters = state->clusters;
    count_totals(state, load, cluster);
    for (int i = 0; i < experts; i++)
        for (int c = 0; c < clusters; c++)
            value[i * clusters + c] = cluster[state->order[i]] == c;
    for (int c = 0; c < clusters; c++)
        value[experts * clusters + c] =
            fmax(0, (double)(state->total[c] * clusters - sum) / clusters);
}

static void read_clusters(const struct mp_clusters *state, const double value[],
                          int32_t cluster[]) {
    for (int i = 0; i < state->experts; i++)
        for (int c = 0; c < state->clusters; c++)
            if (value[i * state->clusters + c] > 0.5)
                cluster[state->order[i]] = c;
}

int mp_clusters_program(struct mp_clusters *state, const int64_t load[],
                        const struct mp_program_limits *limits, int32_t cluster[], int64_t *bound,
                        struct mp_program_result *result, struct mp_error *error) {
    int experts = state->experts, clusters = state->clusters;
    int64_t sum = 0;
    MP_AUTO(program) struct mp_program *program = NULL;
    MP_AUTO(arena) struct mp_arena memory = {0};
    double *value = mp_arena_take(&memory, ((size_t)experts + 1) * (size_t)clusters, sizeof *value);
    if (!value)
        return mp_fail(error, MP_ENOMEM, "no memory for clusters of %d experts", experts);
    MP_TRY(mp_program_create(&program, error));
    for (int e = 0; e < experts; e++)
        sum += load[e];
    mp_load_hottest(load, experts, experts, state->order);
    number_clusters(state, cluster);
    add_columns(state, program);
    add_rows(state, load, sum, *bound, program);
    write_start(state, load, sum, cluster, value);
    MP_TRY(mp_program_solve(program, limits, true, value, result, error));
    if (result->status == MP_PROGRAM_SOLVED || result->status == MP_PROGRAM_LIMITED)
        read_clusters(state, value, cluster);
    /* Whole numbers: up to the next one, but for what the solver is inexact by. */
    double proven = result->bound * clusters;
    int64_t whole = (int64_t)ceil(proven - 1e-6 * fmax(1, proven));
    *bound = whole > *bound ? whole : *bound;
    return MP_OK;
}
