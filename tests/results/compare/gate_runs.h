/* Runs with known differences, for the tests of the gate: 2 ranks, 2 layers, an expert phase that
 * may be slower on one rank, numbers, loads and losses that may be changed one at a time. */
#pragma once

#include "tests/results/runs.h"

#include <jansson.h>

#include "results/compare/gate.h"

enum { GATE_ITERATIONS = 26, GATE_PAIRS = 10 };

/* What a run does; zeros and NULL are the usual. */
struct gate_run {
    const char *job, *side;     /* "fssdp"; "base", "head" or NULL: of no pair */
    const char *suite_run;      /* "a" for base, "b" for head */
    const char *cpu, *revision; /* "cpu A"; "1111" */
    const char *job_text;       /* "batch: 8\n" */
    const char *status, *reason;
    int round, iterations;
    double ms;          /* of an iteration: 10 */
    double drift;       /* ms more in every iteration than in the one before */
    double expert_ms;   /* longer in layer 1 on rank 1, and the iteration as well */
    double wait_ms;     /* longer in layer 0's combine on both ranks, all of it waiting */
    double spread_ms;   /* longer on both ranks, a fifth of it in each of five phases */
    double copies_more; /* in iteration 3, layer 0 */
    double loss_factor; /* 1 */
    double bandwidth;   /* what the planner was told: 1e9 */
    double taken;       /* share of the time for which others have the processors */
    bool shares_cores, is_predicted, has_other_routes, loss_is_nan, is_other_program;
};

static inline const char *gate_or(const char *text, const char *usual) {
    return text ? text : usual;
}

static inline void gate_iteration(struct runs_rank *own, const struct gate_run *run, int i,
                                  int64_t at, int64_t length) {
    int64_t extra = own->rank == 1 ? (int64_t)(run->expert_ms * 1000) : 0;
    uint32_t routes[] = {30, 10, 10, 0};
    if (run->has_other_routes && i == 5) {
        routes[1]--;
        routes[3]++;
    }
    runs_record_one(own, i, MP_PHASE_ITERATION, MP_NO_DIRECTION, at, length, 0, -1, 50, -1, false);
    for (int layer = 0; layer < 2; layer++) {
        int64_t wait = layer == 0 ? (int64_t)(run->wait_ms * 1000) : 0;
        int64_t more = layer == 1 ? extra : 0, start = at + layer * 3000;
        runs_record_one(own, i, MP_PHASE_EXPERT, MP_FORWARD, start, 1000 + more, 0, layer, 60, 1000,
                        false);
        runs_record_one(own, i, MP_PHASE_COMBINE, MP_FORWARD, start + 1000 + more, 500 + wait,
                        200 + wait, layer, -1, -1, false);
        mp_record_load(own->compute, i, layer, 4, routes, NULL);
        if (own->rank == 0)
            mp_record_number(own->compute, i, layer, "copies",
                             3 + (i == 3 && layer == 0 ? run->copies_more : 0));
    }
    static const enum mp_phase others[] = {MP_PHASE_ATTENTION, MP_PHASE_GATE, MP_PHASE_PLAN,
                                           MP_PHASE_HEAD, MP_PHASE_EMBED};
    for (int k = 0; k < 5; k++)
        runs_record_one(own, i, others[k], MP_FORWARD, at + 7000 + k * 300,
                        200 + (int64_t)(run->spread_ms * 200), 0, -1, -1, -1, false);
    if (own->rank == 0)
        mp_record_number(own->compute, i, -1, "loss",
                         run->loss_is_nan && i == 7
                             ? NAN
                             : (5 - .01 * i) * (run->loss_factor ? run->loss_factor : 1));
}

static inline void gate_rank(struct runs_rank *own, const struct gate_run *run) {
    int64_t at = 0;
    int iterations = run->iterations ? run->iterations : GATE_ITERATIONS;
    for (int i = 0; i < iterations; i++) {
        int64_t length = (int64_t)((run->ms ? run->ms : 10) * 1000 + i * run->drift * 1000 +
                                   (run->expert_ms + run->wait_ms + run->spread_ms) * 1000);
        gate_iteration(own, run, i, at, length);
        at += length;
    }
    mp_record_number(own->compute, -1, -1, "ranks-share-cores", run->shares_cores);
    mp_record_number(own->compute, -1, -1, "processor-wait-seconds", run->taken);
    mp_record_number(own->compute, -1, -1, "training-seconds", 1);
    if (own->rank == 0)
        mp_record_number(own->compute, -1, -1, "bandwidth", run->bandwidth ? run->bandwidth : 1e9);
    mp_record_text(own->compute, "environment.cpu", gate_or(run->cpu, "cpu A"));
    mp_record_text(own->compute, "environment.revision", gate_or(run->revision, "1111"));
    runs_clock_samples(own);
}

/* Records and ingests a run; returns its number. */
static inline int64_t gate_add_run(struct runs_folder *folder, const struct gate_run *run) {
    struct runs_rank ranks[2];
    const struct mp_store_fact facts[] = {
        {MP_FACT_PAIRS, "one"},
        {MP_FACT_PAIRS_SIDE, gate_or(run->side, "")},
        {MP_FACT_PAIRS_SAME, run->is_other_program ? "no" : "yes"}};
    struct mp_store_run description = runs_description("fssdp", "text");
    description.job = gate_or(run->job, "fssdp");
    description.suite_run =
        gate_or(run->suite_run, run->side && strcmp(run->side, "head") == 0 ? "b" : "a");
    description.executor = run->is_predicted ? "predicted" : "measured";
    description.job_text = gate_or(run->job_text, "name: x\nbatch: 8\ntext: somewhere\n");
    description.status = gate_or(run->status, "complete");
    description.reason = run->reason;
    description.round = run->round;
    description.fact = facts;
    description.facts = run->side ? 3 : 0;
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        gate_rank(&ranks[r], run);
    }
    return runs_ingest(folder, &description, ranks, 2);
}

/* Job medians of a quiet machine: within 1 % of each other, the same for both sides' rounds. */
static inline double gate_noise(int round, int side) {
    static const double noise[] = {.3, -.5, .1, .6, -.2, -.7, .4, 0, -.4, .2, .5, -.1};
    return 1 + noise[(round * 5 + side * 3) % 12] / 100;
}

/* A run of base (0) or head (1) in a round, with the noise of a quiet machine. */
static inline void gate_add_side(struct runs_folder *folder, struct gate_run run, int round,
                                 int side) {
    run.side = side ? "head" : "base";
    run.round = round;
    run.ms = (run.ms ? run.ms : 10) * gate_noise(round, side);
    gate_add_run(folder, &run);
}

/* `count` pairs; head is like `head` and base as usual. */
static inline void gate_add_pairs(struct runs_folder *folder, int count,
                                  const struct gate_run *base, const struct gate_run *head) {
    for (int i = 0; i < 2 * count; i++)
        gate_add_side(folder, i % 2 ? *head : *base, i / 2, i % 2);
}

/* Compares a with b. */
static inline int gate_try(struct runs_folder *folder, const struct mp_gate_options *options,
                           struct mp_gate **gate, struct mp_error *error) {
    const struct mp_gate_side base = {folder->store, "a", NULL, 0},
                              head = {folder->store, "b", NULL, 0};
    return mp_gate_compare(&base, &head, options, gate, error);
}

TEST_END(gate, struct mp_gate *, mp_gate_destroy(*it))

static inline struct mp_gate *gate_of(struct runs_folder *folder,
                                      const struct mp_gate_options *options) {
    static const struct mp_gate_options usual = {0};
    struct mp_gate *gate = NULL;
    assert_works(gate_try(folder, options ? options : &usual, &gate, &error));
    return gate;
}

/* Of one invocation with another. */
static inline struct mp_gate *gate_of_sides(struct runs_folder *folder, const char *base,
                                            const char *head) {
    const struct mp_gate_side from = {folder->store, base, NULL, 0},
                              to = {folder->store, head, NULL, 0};
    struct mp_gate *gate = NULL;
    assert_works(mp_gate_compare(&from, &to, &(struct mp_gate_options){0}, &gate, &error));
    return gate;
}

static inline const struct mp_gate_metric *gate_metric(const struct mp_gate *gate,
                                                       const char *name) {
    for (int i = 0; i < gate->metrics; i++)
        if (strcmp(gate->metric[i].name, name) == 0)
            return &gate->metric[i];
    fail_msg("no metric %s", name);
    return gate->metric;
}

/* The outcome, and texts that are all in its reason or its place. */
#define gate_expect(gate, name, outcome, ...)                                                      \
    gate_says(gate, name, outcome, (const char *const[]){__VA_ARGS__, NULL})
static inline void gate_says(const struct mp_gate *gate, const char *name, enum mp_outcome outcome,
                             const char *const texts[]) {
    const struct mp_gate_metric *metric = gate_metric(gate, name);
    while (*texts && (strstr(metric->reason, *texts) || strstr(metric->where, *texts)))
        texts++;
    if (metric->outcome != outcome || *texts)
        fail_msg("%s: %s: %s; %s", name, mp_outcome_name(metric->outcome), metric->reason,
                 metric->where);
}

/* The same, and destroys it. */
#define gate_expect_once(made, name, outcome, ...)                                                 \
    do {                                                                                           \
        AUTO(gate) struct mp_gate *once = made;                                                    \
        gate_expect(once, name, outcome, __VA_ARGS__);                                             \
    } while (0)
