/* Runs of a pipeline made up for tests: one forward and one backward pass of each micro-batch
 * through the stages, alternately once a stage is full (1F1B), several ranks per stage, with noise,
 * and with a cause for waiting put in by hand. */
#pragma once

#include "tests/profiler/straggler/analysed.h"

enum {
    PIPELINE_STAGES = 4, /* at most */
    PIPELINE_BATCHES = 8,
    PIPELINE_RANKS = 16,
    PIPELINE_SPANS = 400 /* of a rank in an iteration */
};

struct pipeline {
    int stages, replicas, batches, iterations; /* rank = stage * replicas + replica */
    int layers[PIPELINE_STAGES];
    bool one_span; /* a pass through a stage is one span that says no layer */
    double noise;
    /* What is put in: */
    int rank;            /* -1: nothing.  STAGE: one of the stage's */
    enum mp_cause cause; /* STAGE: more layers, by `layers` */
    double strength; /* SLOW: times, in everything; LINK: s per message to the rank from the stage
                        before (to the first: behind); DATA, COLLECT: s per iteration */
    const struct pipeline *also; /* whose cause is put in as well; NULL: none */
};

struct pipeline_run {
    struct mp_straggler_input input;
    struct mp_recorded_rank *rank;
    struct mp_recorded_span *span;
    double *collected;
    /* [iterations][ranks][batches][direction] s of a pass, and of the message that comes before it
     */
    double *work, *message;
};

struct pipeline_state {
    const struct pipeline *plan;
    struct pipeline_run *run;
    uint64_t *random;
    int iteration;
    double now[PIPELINE_RANKS], message[PIPELINE_RANKS][PIPELINE_BATCHES][2]; /* when it was sent */
    int next[PIPELINE_RANKS];
};

static inline double pipeline_strength(const struct pipeline_state *state, int rank,
                                       enum mp_cause cause) {
    for (const struct pipeline *plan = state->plan; plan; plan = plan->also)
        if (plan->rank == rank && plan->cause == cause)
            return plan->strength;
    return 0;
}

static inline double pipeline_noise(const struct pipeline_state *state) {
    return fmax(0.1, 1 + state->plan->noise * test_normal(state->random));
}

static inline struct mp_recorded_span *pipeline_span(struct pipeline_state *state, int rank,
                                                     int phase, int direction, int layer,
                                                     double seconds) {
    const int ranks = state->plan->stages * state->plan->replicas;
    struct mp_recorded_rank *own = &state->run->rank[state->iteration * ranks + rank];
    assert_true(own->count < PIPELINE_SPANS);
    struct mp_recorded_span *span = &state->run->span[own->first + (size_t)own->count++];
    *span = (struct mp_recorded_span){.start = state->now[rank],
                                      .end = state->now[rank] + seconds,
                                      .tokens = phase == MP_PHASE_EXPERT ? 1000 : -1,
                                      .layer = layer,
                                      .phase = (uint8_t)phase,
                                      .direction = (uint8_t)direction};
    state->now[rank] = span->end;
    return span;
}

static inline double pipeline_work(struct pipeline_state *state, int rank, int phase, int direction,
                                   int layer, double seconds) {
    double slow = pipeline_strength(state, rank, MP_CAUSE_SLOW);
    seconds *= pipeline_noise(state) * (slow > 0 ? slow : 1) * (direction == MP_BACKWARD ? 2 : 1);
    pipeline_span(state, rank, phase, direction, layer, seconds);
    return seconds;
}

/* One pass of a micro-batch through a rank's stage. */
static inline void pipeline_pass(struct pipeline_state *state, int rank, int batch, bool back) {
    const struct pipeline *plan = state->plan;
    const int stage = rank / plan->replicas, direction = back ? MP_BACKWARD : MP_FORWARD;
    const int from = rank + (back ? plan->replicas : -plan->replicas);
    const int to = rank + (back ? -plan->replicas : plan->replicas);
    const int ranks = plan->stages * plan->replicas;
    const size_t at =
        (size_t)(((state->iteration * ranks + rank) * plan->batches + batch) * 2 + back);
    if (from >= 0 && from < ranks) {
        double took = 2e-4 * pipeline_noise(state);
        took += back == (stage == 0) ? pipeline_strength(state, rank, MP_CAUSE_LINK) : 0;
        double arrived = state->now[rank];
        double until = fmax(arrived, state->message[from][batch][back]) + took;
        pipeline_span(state, rank, MP_PHASE_RECV, direction, from, until - arrived)->wait =
            until - arrived;
        state->run->message[at] = took;
    }
    for (int l = 0; l < plan->layers[stage]; l++) {
        int layer = plan->one_span ? -1 : stage * 16 + l;
        state->run->work[at] += pipeline_work(state, rank, MP_PHASE_ATTENTION, direction, layer,
                                              plan->one_span ? 2.5e-3 : 1e-3);
        if (!plan->one_span)
            state->run->work[at] +=
                pipeline_work(state, rank, MP_PHASE_EXPERT, direction, layer, 1.5e-3);
    }
    double collected = pipeline_strength(state, rank, MP_CAUSE_COLLECT);
    if (collected > 0 && back && batch == plan->batches / 2) {
        struct mp_recorded_span *span =
            pipeline_span(state, rank, MP_PHASE_COLLECT, MP_NO_DIRECTION, -1, collected);
        state->run->collected[span - state->run->span] = collected;
    }
    state->message[rank][batch][back] = state->now[rank];
    if (to >= 0 && to < ranks)
        pipeline_span(state, rank, MP_PHASE_SEND, direction, to, 1e-5);
}

/* The k-th pass of a rank: forward until its stage and those behind it are full, then in turn. */
static inline void pipeline_which(const struct pipeline *plan, int rank, int k, int *batch,
                                  bool *back) {
    int full = plan->stages - rank / plan->replicas;
    full = full < plan->batches ? full : plan->batches;
    const int turns = 2 * (plan->batches - full);
    *back = k >= full && (k >= full + turns || (k - full) % 2 == 0);
    *batch = k < full           ? k
             : k < full + turns ? (*back ? (k - full) / 2 : full + (k - full) / 2)
                                : k - full - turns + turns / 2;
}

static inline bool pipeline_ready(const struct pipeline_state *state, int rank, int batch,
                                  bool back) {
    const struct pipeline *plan = state->plan;
    const int from = rank + (back ? plan->replicas : -plan->replicas);
    return from < 0 || from >= plan->stages * plan->replicas ||
           state->message[from][batch][back] > 0;
}

/* All wait for all of the same group, after which a transfer follows. */
static inline void pipeline_meet(struct pipeline_state *state, int phase, int direction, int first,
                                 int count, double transfer) {
    double last = 0;
    for (int r = first; r < first + count; r++)
        last = fmax(last, state->now[r]);
    for (int r = first; r < first + count; r++) {
        double until = last + transfer * pipeline_noise(state);
        struct mp_recorded_span *span =
            pipeline_span(state, r, phase, direction, -1, until - state->now[r]);
        span->wait = span->end - span->start;
    }
}

static inline void pipeline_iteration(struct pipeline_state *state) {
    const struct pipeline *plan = state->plan;
    const int ranks = plan->stages * plan->replicas;
    memset(state->message, 0, sizeof state->message);
    for (int r = 0; r < ranks; r++) {
        const size_t at = (size_t)(state->iteration * ranks + r);
        state->now[r] = 0;
        state->next[r] = 0;
        state->run->rank[at] = (struct mp_recorded_rank){.first = at * PIPELINE_SPANS};
        pipeline_span(state, r, MP_PHASE_DATA, MP_NO_DIRECTION, -1,
                      2e-4 + pipeline_strength(state, r, MP_CAUSE_DATA));
    }
    for (int left = ranks * 2 * plan->batches; left > 0;)
        for (int r = 0; r < ranks; r++) {
            int batch;
            bool back;
            if (state->next[r] == 2 * plan->batches)
                continue;
            pipeline_which(plan, r, state->next[r], &batch, &back);
            if (!pipeline_ready(state, r, batch, back))
                continue;
            pipeline_pass(state, r, batch, back);
            state->next[r]++;
            left--;
        }
    for (int stage = 0; stage < plan->stages && plan->replicas > 1; stage++)
        pipeline_meet(state, MP_PHASE_ALLREDUCE, MP_BACKWARD, stage * plan->replicas,
                      plan->replicas, 1e-3);
    for (int r = 0; r < ranks; r++)
        pipeline_work(state, r, MP_PHASE_OPTIMIZER, MP_NO_DIRECTION, -1, 1e-3);
    pipeline_meet(state, MP_PHASE_WAIT, MP_NO_DIRECTION, 0, ranks, 1e-5);
    for (int r = 0; r < ranks; r++)
        state->run->rank[state->iteration * ranks + r].end = state->now[r];
}

/* To be destroyed. */
static inline void pipeline_make(const struct pipeline *plan, uint64_t *random,
                                 struct pipeline_run *run) {
    struct pipeline_state state = {.plan = plan, .run = run, .random = random};
    const int ranks = plan->stages * plan->replicas;
    const size_t cells = (size_t)(plan->iterations * ranks), spans = cells * PIPELINE_SPANS;
    const size_t passes = cells * (size_t)plan->batches * 2;
    *run = (struct pipeline_run){.rank = calloc(cells, sizeof *run->rank),
                                 .span = calloc(spans, sizeof *run->span),
                                 .collected = calloc(spans, sizeof *run->collected),
                                 .work = calloc(passes, sizeof *run->work),
                                 .message = calloc(passes, sizeof *run->message)};
    assert_true(run->rank && run->span && run->collected && run->work && run->message);
    for (state.iteration = 0; state.iteration < plan->iterations; state.iteration++)
        pipeline_iteration(&state);
    const size_t kept = close_up(run->rank, cells, run->span, run->collected);
    run->input =
        (struct mp_straggler_input){.times = {ranks, plan->iterations, run->rank, run->span, kept},
                                    .collected = run->collected,
                                    .common_clock = true};
}

static inline void pipeline_destroy(struct pipeline_run *run) {
    free(run->rank);
    free(run->span);
    free(run->collected);
    free(run->work);
    free(run->message);
}
TEST_END(pipeline, struct pipeline_run, pipeline_destroy(it))
