/* Runs made up for the tests of profiler/straggler: ranks that attend, meet at the gate, exchange,
 * compute experts and exchange back, with noise, and with a cause for waiting put in by hand. */
#pragma once

#include "tests/profiler/straggler/analysed.h"

enum { SYNTHETIC_TOKENS = 1000, SYNTHETIC_EXPERTS = 8 };

struct synthetic {
    int ranks, layers, iterations;
    double noise;  /* standard deviation of every span, of itself */
    double jitter; /* of tokens */
    /* What is put in: */
    int rank; /* -1: nothing */
    enum mp_cause cause;
    double strength; /* ROUTING: more tokens, times; SLOW: slower, times, in everything (or, with
                        `phase`, seconds in every span of that phase); LINK: seconds per dispatch;
                        ONE_OFF and others: seconds per iteration */
    int phase;       /* SLOW: -1 for everything */
    int every;       /* iterations; 0: all.  ONE_OFF needs it */
    bool between;    /* CHECKPOINT: between iterations, not in them */
    bool cpu;        /* processor time is known */
    const struct synthetic *also; /* whose cause is put in as well; NULL: none */
};

struct synthetic_run {
    struct mp_straggler_input input;
    struct mp_recorded_rank *rank;
    struct mp_recorded_span *span;
    uint32_t *routes;
    double *collected;
    struct mp_recorded_between *between;
};

struct synthetic_state {
    const struct synthetic *plan;
    struct synthetic_run *run;
    uint64_t *random;
    double now[64], arrived[64], waited[64]; /* s, waited: in this iteration for others to come */
    double stolen; /* in this iteration, to come when `until_stolen` more things have been done */
    int until_stolen;
    int iteration;
};

/* The plan that puts this cause into this rank and iteration; NULL: none. */
static inline const struct synthetic *synthetic_hits(const struct synthetic_state *state, int rank,
                                                     enum mp_cause cause) {
    for (const struct synthetic *plan = state->plan; plan; plan = plan->also)
        if (plan->rank == rank && plan->cause == cause &&
            (plan->every == 0 || state->iteration % plan->every == plan->every / 2))
            return plan;
    return NULL;
}

static inline double synthetic_strength(const struct synthetic_state *state, int rank,
                                        enum mp_cause cause) {
    const struct synthetic *plan = synthetic_hits(state, rank, cause);
    return plan ? plan->strength : 0;
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
    const struct synthetic *slow = synthetic_hits(state, rank, MP_CAUSE_SLOW);
    seconds *= fmax(0.1, 1 + state->plan->noise * test_normal(state->random));
    if (slow && slow->phase < 0)
        seconds *= slow->strength;
    else if (slow && slow->phase == phase)
        seconds += slow->strength;
    if (synthetic_hits(state, rank, MP_CAUSE_STOLEN) && state->until_stolen-- == 0)
        seconds += state->stolen;
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
        double took = transfer * (1 + state->plan->noise * test_normal(state->random));
        if (phase == MP_PHASE_DISPATCH)
            took += synthetic_strength(state, r, MP_CAUSE_LINK);
        span->wait = last + took - state->arrived[r];
        state->waited[r] += last - state->arrived[r];
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
        tokens[r] = SYNTHETIC_TOKENS * (1 + plan->jitter * test_normal(state->random));
        if (synthetic_hits(state, r, MP_CAUSE_ROUTING))
            tokens[r] *= synthetic_strength(state, r, MP_CAUSE_ROUTING);
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

/* What a rank alone does before it works, and does late. */
static inline void synthetic_begin(struct synthetic_state *state, int rank, size_t each) {
    size_t at = (size_t)(state->iteration * state->plan->ranks + rank);
    const struct synthetic *saves = synthetic_hits(state, rank, MP_CAUSE_CHECKPOINT);
    state->waited[rank] = 0;
    state->now[rank] = synthetic_strength(state, rank, MP_CAUSE_BEFORE);
    if (saves && saves->between) {
        state->run->between[at] =
            (struct mp_recorded_between){saves->strength, MP_PHASE_CHECKPOINT};
        state->now[rank] += saves->strength;
    }
    state->run->rank[at] = (struct mp_recorded_rank){.start = state->now[rank], .first = at * each};
    if (saves && !saves->between) {
        struct mp_recorded_span *span = synthetic_span(state, rank, MP_PHASE_CHECKPOINT, 2, -1);
        state->now[rank] = span->end = span->start + saves->strength;
        state->waited[rank] += saves->strength;
    }
    state->waited[rank] += 2e-4 + synthetic_strength(state, rank, MP_CAUSE_DATA);
    state->now[rank] += synthetic_strength(state, rank, MP_CAUSE_HOST);
    struct mp_recorded_span *span = synthetic_span(state, rank, MP_PHASE_DATA, 2, -1);
    state->now[rank] = span->end =
        span->start + 2e-4 + synthetic_strength(state, rank, MP_CAUSE_DATA);
    if (synthetic_hits(state, rank, MP_CAUSE_STOLEN)) {
        state->stolen = synthetic_strength(state, rank, MP_CAUSE_STOLEN);
        state->until_stolen = test_random_int(state->random, 0, 10 * state->plan->layers);
    }
}

/* Work that comes once, or in which garbage is collected. */
static inline void synthetic_event(struct synthetic_state *state, int rank, int layer,
                                   enum mp_cause cause) {
    double seconds = synthetic_strength(state, rank, cause);
    if (!(seconds > 0))
        return;
    struct mp_recorded_span *span =
        synthetic_span(state, rank, MP_PHASE_ATTENTION, MP_BACKWARD, layer);
    state->now[rank] = span->end = span->start + seconds;
    if (cause == MP_CAUSE_COLLECT)
        state->run->collected[span - state->run->span] = 0.95 * seconds;
}

static inline void synthetic_end(struct synthetic_state *state, int rank) {
    struct synthetic_run *run = state->run;
    struct mp_recorded_rank *own = &run->rank[state->iteration * state->plan->ranks + rank];
    own->end = state->now[rank] + 2e-4 * test_random_double(state->random); /* nothing recorded */
    if (state->plan->cpu) /* who waits for others, or for a disk, gives its core away */
        own->cpu = own->end - own->start - state->waited[rank] -
                   synthetic_strength(state, rank, MP_CAUSE_STOLEN);
}

static inline void synthetic_iteration(struct synthetic_state *state) {
    const struct synthetic *plan = state->plan;
    double tokens[16][64];
    for (int r = 0; r < plan->ranks; r++)
        synthetic_begin(state, r, (size_t)(16 * plan->layers + 8));
    for (int l = 0; l < plan->layers; l++)
        synthetic_layer(state, l, false, tokens[l]);
    for (int l = plan->layers - 1; l >= 0; l--) {
        if (l == plan->layers / 2)
            for (int r = 0; r < plan->ranks; r++) {
                synthetic_event(state, r, l, MP_CAUSE_ONE_OFF);
                synthetic_event(state, r, l, MP_CAUSE_COLLECT);
            }
        synthetic_layer(state, l, true, tokens[l]);
    }
    synthetic_meet(state, MP_PHASE_ALLREDUCE, MP_BACKWARD, -1, 1e-4, 1e-3, false);
    synthetic_work(state, MP_PHASE_OPTIMIZER, 2, -1, 1e-3, NULL);
    synthetic_meet(state, MP_PHASE_WAIT, 2, -1, 1e-5, 1e-5, false);
    for (int r = 0; r < plan->ranks; r++)
        synthetic_end(state, r);
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
        .collected = calloc(spans, sizeof *run->collected),
        .between = calloc(cells, sizeof *run->between),
    };
    assert_true(run->rank && run->span && run->routes && run->collected && run->between);
    for (state.iteration = 0; state.iteration < plan->iterations; state.iteration++)
        synthetic_iteration(&state);
    const size_t kept = close_up(run->rank, cells, run->span, run->collected);
    run->input = (struct mp_straggler_input){
        .times = {plan->ranks, plan->iterations, run->rank, run->span, kept},
        .common_clock = true,
        .collected = run->collected,
        .between = run->between,
        .routes = run->routes,
        .layers = plan->layers,
        .experts = SYNTHETIC_EXPERTS,
    };
}

static inline void synthetic_destroy(struct synthetic_run *run) {
    free(run->rank);
    free(run->span);
    free(run->routes);
    free(run->collected);
    free(run->between);
}
TEST_END(synthetic, struct synthetic_run, synthetic_destroy(it))
