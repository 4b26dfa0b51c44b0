/* Random cases for the sparse collectives and what their results must be, worked out element by
 * element without messages.  Every rank makes the same case from the same seed. */
#pragma once

#include "reference/comm/comm.h"
#include "tests/support.h"

enum { CASE_EXPERTS = 24, CASE_RANKS = 16 };

struct sparse_case {
    uint64_t seed;
    int ranks, ranks_per_node, experts;
    size_t bytes;
    int owner[CASE_EXPERTS];
    bool holds[CASE_EXPERTS][CASE_RANKS], enters[CASE_EXPERTS][CASE_RANKS];
    struct mp_transfers fetch, reduce; /* in no order */
};

/* The value of element i of the chunk of expert e that rank r begins with: never 0, with a mantissa
 * that makes sums depend on their order. */
static inline float case_value(const struct sparse_case *c, int e, int r, size_t i) {
    uint64_t state = c->seed ^ (uint64_t)(e * CASE_RANKS + r) << 40 ^ i;
    uint64_t bits = test_random(&state);
    float value = (float)(bits >> 40) * 0x1p-24f + 0.001f;
    return bits & 1 ? value : -value;
}

static inline void case_add_copy(struct sparse_case *c, int e, int r, enum mp_stage stage,
                                 bool enters) {
    struct mp_transfer fetch = {.expert = e,
                                .from = c->owner[e],
                                .to = r,
                                .bytes = (int64_t)c->bytes,
                                .stage = stage,
                                .enters = enters};
    struct mp_transfer reduce = fetch;
    reduce.from = r;
    reduce.to = c->owner[e];
    reduce.stage = MP_STAGE_BACKWARD_REDUCE;
    c->holds[e][r] = true;
    c->enters[e][r] = enters;
    assert_int_equal(mp_transfers_add(&c->fetch, fetch, NULL), MP_OK);
    assert_int_equal(mp_transfers_add(&c->reduce, reduce, NULL), MP_OK);
}

static inline void case_shuffle(struct mp_transfers *list, uint64_t *state) {
    test_shuffle(state, list->item, (size_t)list->count, sizeof *list->item);
}

enum case_kind { CASE_NONE, CASE_ALL, CASE_SOME, CASE_FEW, CASE_KINDS };

static inline void case_create(struct sparse_case *c, uint64_t seed, int ranks, enum case_kind kind,
                               size_t bytes) {
    uint64_t state = seed;
    int left[CASE_RANKS];
    *c = (struct sparse_case){.seed = seed, .ranks = ranks, .bytes = bytes};
    c->ranks_per_node = test_random_int(&state, 1, ranks);
    c->experts = test_random_int(&state, 1, CASE_EXPERTS);
    for (int r = 0; r < ranks; r++)
        left[r] = kind == CASE_FEW ? 2 : CASE_EXPERTS; /* memory for copies */
    for (int e = 0; e < c->experts; e++) {
        c->owner[e] = test_random_int(&state, 0, ranks - 1);
        c->holds[e][c->owner[e]] = true;
        int chance = kind == CASE_NONE ? 0 : kind == CASE_ALL ? 8 : test_random_int(&state, 1, 7);
        for (int r = 0; r < ranks; r++)
            if (r != c->owner[e] && left[r] && test_random_int(&state, 0, 7) < chance) {
                left[r]--;
                case_add_copy(c, e, r, MP_STAGE_BEFORE_GATE, test_random_int(&state, 0, 3) == 0);
            }
    }
    case_shuffle(&c->fetch, &state);
    case_shuffle(&c->reduce, &state);
}

/* Some copies are made after others, of any that is there by then.  Sums stay as they are. */
static inline void case_pass_on(struct sparse_case *c) {
    uint64_t state = ~c->seed;
    bool late[CASE_EXPERTS][CASE_RANKS] = {{false}};
    for (int i = 0; i < c->fetch.count; i++)
        if (test_random_int(&state, 0, 1)) {
            c->fetch.item[i].stage = MP_STAGE_AFTER_GATE;
            late[c->fetch.item[i].expert][c->fetch.item[i].to] = true;
        }
    for (int i = 0; i < c->fetch.count; i++) {
        struct mp_transfer *fetch = &c->fetch.item[i];
        if (fetch->stage != MP_STAGE_AFTER_GATE)
            continue;
        do
            fetch->from = test_random_int(&state, 0, c->ranks - 1);
        while (!c->holds[fetch->expert][fetch->from] || late[fetch->expert][fetch->from]);
    }
}

static inline void case_destroy(struct sparse_case *c) {
    mp_transfers_destroy(&c->fetch);
    mp_transfers_destroy(&c->reduce);
}

TEST_END(case, struct sparse_case, case_destroy(it))

/* This rank's chunks, each with its own values and a guard behind it; only holders have one. */
static inline float *case_memory(const struct sparse_case *c, int rank, float *chunk[]) {
    size_t count = c->bytes / sizeof(float);
    float *memory = malloc(((size_t)c->experts * (count + 1) + 1) * sizeof *memory);
    assert_non_null(memory);
    for (int e = 0; e < c->experts; e++) {
        chunk[e] = NULL;
        if (!c->holds[e][rank])
            continue;
        chunk[e] = memory + (size_t)e * (count + 1);
        for (size_t i = 0; i < count; i++)
            chunk[e][i] = case_value(c, e, rank, i);
        chunk[e][count] = 4711.0f;
    }
    return memory;
}

/* The receivers of expert e in a node, in the order in which it passes them: ascending and cyclic
 * from where it enters on, or from number e mod n. */
static inline int case_receivers(const struct sparse_case *c, int e, int node, int receiver[]) {
    int ascending[CASE_RANKS], count = 0, first = -1;
    for (int r = 0; r < c->ranks; r++)
        if (r / c->ranks_per_node == node && c->holds[e][r] && r != c->owner[e]) {
            first = first < 0 && c->enters[e][r] ? count : first;
            ascending[count++] = r;
        }
    for (int i = 0; i < count; i++)
        receiver[i] = ascending[((first < 0 ? e : first) + i) % count];
    return count;
}

/* child[r]: whom rank r sends expert e: the next rank of its node, then one of another node; -1. */
static inline void case_children(const struct sparse_case *c, int e, int child[][2]) {
    const int nodes = (c->ranks - 1) / c->ranks_per_node + 1;
    const int home = c->owner[e] / c->ranks_per_node;
    memset(child, -1, CASE_RANKS * sizeof *child);
    int source = c->owner[e], receiver[CASE_RANKS];
    for (int i = 0; i < nodes; i++) {
        int count = case_receivers(c, e, (home + i) % nodes, receiver);
        if (count)
            child[source][i > 0] = receiver[0];
        for (int k = 1; k < count; k++)
            child[receiver[k - 1]][0] = receiver[k];
        source = count && i > 0 ? receiver[0] : source;
    }
}

/* Sum over the ranks that get their copy through rank r, and itself: own, then the sum of its next
 * rank, then that of the next node. */
static inline float case_subtree(const struct sparse_case *c, int e, int child[][2], int r,
                                 size_t i) {
    float sum = case_value(c, e, r, i);
    for (int k = 0; k < 2; k++)
        if (child[r][k] >= 0)
            sum += case_subtree(c, e, child, child[r][k], i);
    return sum;
}

static inline void case_check_gathered(const struct sparse_case *c, int rank,
                                       float *const chunk[]) {
    for (int e = 0; e < c->experts; e++) {
        if (!chunk[e])
            continue;
        size_t count = c->bytes / sizeof(float);
        for (size_t i = 0; i < count; i++) {
            float expected = case_value(c, e, c->owner[e], i);
            if (memcmp(&chunk[e][i], &expected, sizeof expected))
                fail_msg("seed 0x%llx rank %d expert %d element %zu: %a, the owner has %a",
                         (unsigned long long)c->seed, rank, e, i, chunk[e][i], expected);
        }
        assert_true(chunk[e][count] == 4711.0f);
    }
}

static inline void case_check_reduced(const struct sparse_case *c, int rank, float *const chunk[]) {
    for (int e = 0; e < c->experts; e++) {
        if (c->owner[e] != rank)
            continue;
        int child[CASE_RANKS][2];
        size_t count = c->bytes / sizeof(float);
        case_children(c, e, child);
        for (size_t i = 0; i < count; i++) {
            float expected = case_subtree(c, e, child, rank, i);
            if (memcmp(&chunk[e][i], &expected, sizeof expected))
                fail_msg("seed 0x%llx rank %d expert %d element %zu: %a, the sum is %a",
                         (unsigned long long)c->seed, rank, e, i, chunk[e][i], expected);
        }
        assert_true(chunk[e][count] == 4711.0f);
    }
}

/* Copies that rank holds beside what it owns. */
static inline int case_copies(const struct sparse_case *c, int rank) {
    int copies = 0;
    for (int e = 0; e < c->experts; e++)
        copies += c->holds[e][rank] && c->owner[e] != rank;
    return copies;
}
