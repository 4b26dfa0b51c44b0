/* Who made the others wait in one run. */
#pragma once

#include <jansson.h>

#include "profiler/straggler/straggler.h"
#include "reference/base/arena.h"
#include "results/report/recording_cost.h"
#include "results/report/report.h"
#include "results/report/waiting_words.h"

struct straggler {
    struct mp_straggler found;
    struct waiting_context context;
    int iterations, looked_at; /* steady ones, and how many of them were analysed */
    bool shares_cores;
    struct recording_cost cost;
};

struct straggler_list {
    struct straggler *one; /* [count], zeroed at first */
    int count;
    struct mp_arena memory; /* of them */
};
/* Errors: MP_ENOMEM. */
int straggler_list_make(struct straggler_list *list, int count, struct mp_error *error);
void straggler_list_free(struct straggler_list *list); /* accepts a zeroed one */
MP_END(stragglers, struct straggler_list, straggler_list_free(it))

/* Into one of a list. */
int straggler_find(struct mp_store *store, int64_t run_id, struct straggler *straggler,
                   struct mp_error *error);

/* Sentences: the findings, at most `most` of them, and what can't be said; `label` begins each. */
void straggler_print(const struct straggler *straggler, const char *label, int most, FILE *out);

/* The analysis in full (stragglers_detail.c): efficiencies, ranks, phases of layers, balance of
 * routes. */
int stragglers_detail_print(const struct straggler *straggler, FILE *out, struct mp_error *error);

/* Findings, slowdowns, ranks and balance; `in_full` with phases of layers and balance of each
 * layer.  Times in ms. */
json_t *stragglers_detail_json(const struct straggler *straggler, bool in_full);
