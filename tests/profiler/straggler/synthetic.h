/* Runs made up for the tests of profiler/straggler: ranks that attend, meet at the gate, exchange,
 * compute experts and exchange back, with noise, and with a cause for waiting put in by hand. */
#ifndef MOEPERF_TESTS_PROFILER_STRAGGLER_SYNTHETIC_H
#define MOEPERF_TESTS_PROFILER_STRAGGLER_SYNTHETIC_H

#include "tests/support.h"

#include <stdbool.h>
#include <string.h>

#include "profiler/record/record.h"
#include "profiler/straggler/straggler.h"

enum { SYNTHETIC_TOKENS = 1000, SYNTHETIC_EXPERTS = 8 };

struct synthetic {
    int ranks, layers, iterations;
    double noise;  /* standard deviation of every span, of itself */
    double jitter; /* of tokens */
    /* What is put in: */
    int rank; /* -1: nothing */
    enum mp_cause cause;
    double strength; /* ROUTING: more tokens, times; SLOW: slower, times, in everything (or, with
                        `phase`, seconds in every span of that phase); COMMUNICATION: seconds per
                        dispatch; HOST, BEFORE: seconds per iteration; ONE_OFF: seconds */
    int phase;       /* SLOW: -1 for everything */
    int every;       /* iterations; 0: all.  ONE_OFF needs it */
};

struct synthetic_run {
    struct mp_straggler_input input;
    struct mp_recorded_rank *rank;
    struct mp_recorded_span *span;
    uint32_t *routes;
    size_t capacity;
};

struct synthetic_state {
    const struct synthetic *plan;
    struct synthetic_run *run;
    uint64_t *random;
    double now[64], arrived[64];
    int iteration;
};

/* About normal. */
static inline double synthetic_normal(uint64_t *random) {
    double sum = -6;
    for (int i = 0; i < 12; i++)
        sum += test_random_double(random);
    return sum;
}

static inline bool synthetic_hits(const struct synthetic_state *state, int rank,
                                  enum mp_cause cause) {
    const struct synthetic *plan = state->plan;
    return plan->rank == rank && plan->cause == cause &&
           (plan->every == 0 || state->iteration % plan->every == plan->every / 2);
}

static inline struct mp_recorded_span *synthetic_span(struct synthetic_state *state, int rank,
                                                      int phase, int direction, int layer) {
    struct synthetic_run *run = state->run;
    /* Every rank's spans of an iteration lie together. */
    struct mp_recorded_rank *own = &run->rank[state->iteration * state->plan->ranks + rank];
    struct mp_recorded_span *span = &run->span[own->first + (size_t)own->count++];
    *span = (struct mp_recorded_span){.start = state->now[rank],
                                      .tokens = SYNTHETIC_TOKENS,
                                      .layer = layer,
                                      .phase = (uint8_t)phase,
                                      .direction = (uint8_t)direction};
    return span;
}

static inline double synthetic_seconds(struct synthetic_state *state, int rank, int phase,
                                       double seconds) {
    const struct synthetic *plan = state->plan;
    seconds *= fmax(0.1, 1 + plan->noise * synthetic_normal(state->random));
    if (synthetic_hits(state, rank, MP_CAUSE_SLOW)) {
        if (plan->phase < 0)
            seconds *= plan->strength;
        else if (plan->phase == phase)
            seconds += plan->strength;
    }
    return seconds;
}

/* Own work of all ranks in a span that nobody waits in. */
static inline void synthetic_work(struct synthetic_state *state, int phase, int direction,
                                  int layer, double seconds, const double tokens[]) {
    for (int r = 0; r < state->plan->ranks; r++) {
        struct mp_recorded_span *span = synthetic_span(state, r, phase, direction, layer);
        double share = tokens ? tokens[r] / SYNTHETIC_TOKENS : 1;
        span->tokens = tokens ? llround(tokens[r]) : SYNTHETIC_TOKENS;
        span->end = span->start + synthetic_seconds(state, r, phase, seconds * share);
        state->now[r] = span->end;
    }
}

/* Own work, then (or with `after` before it) all wait for all. */
static inline void synthetic_meet(struct synthetic_state *state, int phase, int direction,
                                  int layer, double seconds, double transfer, bool after) {
    double last = 0;
    for (int r = 0; r < state->plan->ranks; r++) {
        state->arrived[r] = state->now[r];
        if (!after)
            state->arrived[r] += synthetic_seconds(state, r, phase, seconds);
        last = fmax(last, state->arrived[r]);
    }
    for (int r = 0; r < state->plan->ranks; r++) {
        struct mp_recorded_span *span = synthetic_span(state, r, phase, direction, layer);
        double took = transfer * (1 + state->plan->noise * synthetic_normal(state->random));
        if (phase == MP_PHASE_DISPATCH && synthetic_hits(state, r, MP_CAUSE_COMMUNICATION))
            took += state->plan->strength;
        span->wait = last + took - state->arrived[r];
        span->end = last + took;
        if (after)
            span->end += synthetic_seconds(state, r, phase, seconds);
        state->now[r] = span->end;
    }
}

/* Tokens of every rank's experts in a layer, and the routes that they come from. */
static inline void synthetic_tokens(struct synthetic_state *state, int layer, double tokens[]) {
    const struct synthetic *plan = state->plan;
    uint32_t *routes =
        state->run->routes + (size_t)(state->iteration * plan->layers + layer) * SYNTHETIC_EXPERTS;
    for (int r = 0; r < plan->ranks; r++) {
        tokens[r] = SYNTHETIC_TOKENS * (1 + plan->jitter * synthetic_normal(state->random));
        if (synthetic_hits(state, r, MP_CAUSE_ROUTING))
            tokens[r] *= plan->strength;
        routes[r % SYNTHETIC_EXPERTS] += (uint32_t)llround(tokens[r]);
    }
}

static inline void synthetic_layer(struct synthetic_state *state, int layer, bool back,
                                   double tokens[]) {
    if (!back) {
        synthetic_work(state, MP_PHASE_ATTENTION, MP_FORWARD, layer, 2e-3, NULL);
        synthetic_meet(state, MP_PHASE_GATE, MP_FORWARD, layer, 3e-4, 5e-5, false);
        synthetic_work(state, MP_PHASE_PLAN, MP_FORWARD, layer, 1e-4, NULL);
        synthetic_tokens(state, layer, tokens);
        synthetic_meet(state, MP_PHASE_DISPATCH, MP_FORWARD, layer, 2e-4, 5e-4, false);
        synthetic_work(state, MP_PHASE_EXPERT, MP_FORWARD, layer, 3e-3, tokens);
        synthetic_meet(state, MP_PHASE_COMBINE, MP_FORWARD, layer, 2e-4, 5e-4, true);
        return;
    }
    synthetic_meet(state, MP_PHASE_COMBINE, MP_BACKWARD, layer, 2e-4, 5e-4, false);
    synthetic_work(state, MP_PHASE_EXPERT, MP_BACKWARD, layer, 6e-3, tokens);
    synthetic_meet(state, MP_PHASE_DISPATCH, MP_BACKWARD, layer, 2e-4, 5e-4, false);
    synthetic_work(state, MP_PHASE_GATE, MP_BACKWARD, layer, 2e-4, NULL);
    synthetic_work(state, MP_PHASE_ATTENTION, MP_BACKWARD, layer, 4e-3, NULL);
}

static inline void synthetic_iteration(struct synthetic_state *state) {
    const struct synthetic *plan = state->plan;
    size_t each = (size_t)(16 * plan->layers + 8);
    double tokens[16][64];
    for (int r = 0; r < plan->ranks; r++) {
        size_t at = (size_t)(state->iteration * plan->ranks + r);
        state->now[r] = synthetic_hits(state, r, MP_CAUSE_BEFORE) ? plan->strength : 0;
        state->run->rank[at] =
            (struct mp_recorded_rank){.start = state->now[r], .first = at * each};
    }
    for (int r = 0; r < plan->ranks; r++) {
        struct mp_recorded_span *span = synthetic_span(state, r, MP_PHASE_DATA, 2, -1);
        span->end = span->start + 2e-4;
        if (synthetic_hits(state, r, MP_CAUSE_HOST))
            span->end += plan->strength;
        state->now[r] = span->end;
    }
    for (int l = 0; l < plan->layers; l++)
        synthetic_layer(state, l, false, tokens[l]);
    for (int l = plan->layers - 1; l >= 0; l--) {
        if (l == plan->layers / 2)
            for (int r = 0; r < plan->ranks; r++)
                if (synthetic_hits(state, r, MP_CAUSE_ONE_OFF)) {
                    struct mp_recorded_span *span =
                        synthetic_span(state, r, MP_PHASE_ATTENTION, MP_BACKWARD, l);
                    span->end = state->now[r] += plan->strength;
                }
        synthetic_layer(state, l, true, tokens[l]);
    }
    synthetic_meet(state, MP_PHASE_ALLREDUCE, MP_BACKWARD, -1, 1e-4, 1e-3, false);
    synthetic_work(state, MP_PHASE_OPTIMIZER, 2, -1, 1e-3, NULL);
    synthetic_meet(state, MP_PHASE_WAIT, 2, -1, 1e-5, 1e-5, false);
    for (int r = 0; r < plan->ranks; r++)
        state->run->rank[state->iteration * plan->ranks + r].end = state->now[r];
}

/* To be destroyed. */
static inline void synthetic_make(const struct synthetic *plan, uint64_t *random,
                                  struct synthetic_run *run) {
    struct synthetic_state state = {.plan = plan, .run = run, .random = random};
    size_t cells = (size_t)(plan->iterations * plan->ranks);
    size_t spans = cells * (size_t)(16 * plan->layers + 8);
    *run = (struct synthetic_run){
        .rank = calloc(cells, sizeof *run->rank),
        .span = calloc(spans, sizeof *run->span),
        .routes = calloc((size_t)(plan->iterations * plan->layers * SYNTHETIC_EXPERTS),
                         sizeof *run->routes),
    };
    assert_true(run->rank && run->span && run->routes);
    for (state.iteration = 0; state.iteration < plan->iterations; state.iteration++)
        synthetic_iteration(&state);
    size_t kept = 0; /* without the room that was left */
    for (size_t i = 0; i < cells; i++) {
        memmove(run->span + kept, run->span + run->rank[i].first,
                (size_t)run->rank[i].count * sizeof *run->span);
        run->rank[i].first = kept;
        kept += (size_t)run->rank[i].count;
    }
    run->input = (struct mp_straggler_input){
        .times = {plan->ranks, plan->iterations, run->rank, run->span, kept},
        .common_clock = true,
        .routes = run->routes,
        .layers = plan->layers,
        .experts = SYNTHETIC_EXPERTS,
    };
}

static inline void synthetic_destroy(struct synthetic_run *run) {
    free(run->rank);
    free(run->span);
    free(run->routes);
}

#endif
