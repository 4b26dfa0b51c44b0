#include "results/store/summary.h"

#include <stdlib.h>
#include <string.h>

#include "results/store/summary_entries.h"

/* No span lasts longer (5 hours in ns) or works on more; larger values are damage, and sums of half
 * a million of these still fit. */
#define LIMIT ((int64_t)1 << 44)

static int64_t clamp(int64_t value, int64_t most) {
    return value < 0 ? 0 : value > most ? most : value;
}

static int64_t duration_of(const struct mp_span *span) {
    int64_t duration;
    if (__builtin_sub_overflow(span->end_ns, span->start_ns, &duration))
        return 0;
    return clamp(duration, LIMIT);
}

int summary_init(struct summary *summary, int ranks, struct mp_error *error) {
    *summary = (struct summary){.ranks = ranks, .clocks_comparable = true, .ranks_share_cores = -1};
    summary->recorded = calloc((size_t)ranks, sizeof *summary->recorded);
    if (!summary->recorded)
        return mp_no_memory(error);
    keyed_init(&summary->iterations,
               sizeof(struct iteration_entry) + (size_t)ranks * sizeof(struct rank_iteration));
    keyed_init(&summary->cells, (size_t)ranks * sizeof(struct cell));
    keyed_init(&summary->layers, sizeof(struct layer_entry));
    return MP_OK;
}

void summary_free(struct summary *summary) {
    for (size_t i = 0; i < summary->layers.count; i++)
        free(((struct layer_entry *)keyed_value(&summary->layers, i))->routes);
    keyed_free(&summary->iterations);
    keyed_free(&summary->cells);
    keyed_free(&summary->layers);
    free(summary->recorded);
    *summary = (struct summary){0};
}

static void take_iteration(struct rank_iteration *own, const struct mp_span *span) {
    if (!own->complete || span->start_ns < own->start_ns)
        own->start_ns = span->start_ns;
    int64_t end_ns = span->start_ns + duration_of(span);
    if (!own->complete || end_ns > own->end_ns)
        own->end_ns = end_ns;
    if (!own->complete)
        own->tokens = -1;
    if (span->tokens >= 0)
        own->tokens = clamp(own->tokens, LIMIT) + clamp(span->tokens, LIMIT);
    own->wait_ns += clamp(span->wait_ns, duration_of(span));
    own->complete = true;
}

static void take_phase(struct cell *cell, const struct mp_span *span, bool in_flight) {
    int64_t duration = duration_of(span);
    if (in_flight) {
        cell->in_flight_ns += duration;
        return;
    }
    int64_t wait = clamp(span->wait_ns, duration);
    cell->computed = true;
    cell->busy_ns += duration - wait;
    cell->wait_ns += wait;
    if (span->tokens >= 0 && span->direction == MP_BACKWARD) {
        cell->has_backward_tokens = true;
        cell->backward_tokens += clamp(span->tokens, LIMIT);
    } else if (span->tokens >= 0) {
        cell->has_forward_tokens = true;
        cell->forward_tokens += clamp(span->tokens, LIMIT);
    }
}

int summary_add_span(struct summary *summary, int rank, const struct mp_span *span, bool in_flight,
                     struct mp_error *error) {
    if (span->iteration < 0 || span->layer < -1 || span->phase >= MP_PHASES)
        return MP_OK;
    struct iteration_entry *entry =
        keyed_add(&summary->iterations, keyed_key(span->iteration, -1, 0));
    if (!entry)
        return mp_no_memory(error);
    struct rank_iteration *own = &entry->rank[rank];
    if (span->phase == MP_PHASE_ITERATION) {
        take_iteration(own, span);
        return MP_OK;
    }
    if (!in_flight) {
        if (!lies_beside_iterations(span->phase))
            own->phases_wait_ns += clamp(span->wait_ns, duration_of(span));
        if (span->phase == MP_PHASE_EXPERT && span->direction == MP_FORWARD) {
            own->uncounted = own->uncounted || span->tokens < 0;
            own->routes += clamp(span->tokens, LIMIT);
        }
        summary->phase_flops[span->phase] += span->flops > 0 ? (double)span->flops : 0;
    }
    struct cell *cells =
        keyed_add(&summary->cells, keyed_key(span->iteration, span->layer, span->phase));
    if (!cells)
        return mp_no_memory(error);
    take_phase(&cells[rank], span, in_flight);
    return MP_OK;
}

static bool in_an_iteration(int64_t iteration, int layer) {
    return iteration >= 0 && iteration <= INT32_MAX && layer >= -1 && layer <= INT16_MAX;
}

int summary_add_load(struct summary *summary, const struct mp_spool_record *record,
                     struct mp_error *error) {
    int64_t iteration = record->as.load.iteration;
    int layer = record->as.load.layer, experts = record->as.load.experts;
    if (!in_an_iteration(iteration, layer) || experts < 1)
        return MP_OK;
    struct layer_entry *entry = keyed_add(&summary->layers, keyed_key(iteration, layer, 0));
    if (!entry)
        return mp_no_memory(error);
    if (experts > entry->experts) {
        int64_t *routes = realloc(entry->routes, (size_t)experts * sizeof *routes);
        if (!routes)
            return mp_no_memory(error);
        memset(routes + entry->experts, 0, (size_t)(experts - entry->experts) * sizeof *routes);
        entry->routes = routes;
        entry->experts = experts;
    }
    for (int e = 0; e < experts; e++) {
        entry->routes[e] += record->as.load.routes[e];
        entry->dropped += record->as.load.dropped ? record->as.load.dropped[e] : 0;
    }
    return MP_OK;
}

/* Ranks come in ascending order, and the lowest that recorded a loss counts. */
static void take_loss(bool *has, double *own, double value) {
    if (!*has)
        *own = value;
    *has = true;
}

int summary_add_number(struct summary *summary, const struct mp_spool_record *record,
                       struct mp_error *error) {
    const char *name = record->as.number.name;
    double value = record->as.number.value;
    if (record->as.number.iteration == -1 && strcmp(name, "ranks-share-cores") == 0) {
        int shares = value > 0;
        summary->ranks_share_cores =
            shares > summary->ranks_share_cores ? shares : summary->ranks_share_cores;
    }
    if (record->as.number.layer != -1 || !in_an_iteration(record->as.number.iteration, -1))
        return MP_OK;
    struct iteration_entry *entry =
        keyed_add(&summary->iterations, keyed_key(record->as.number.iteration, -1, 0));
    if (!entry)
        return mp_no_memory(error);
    if (strcmp(name, "loss") == 0)
        take_loss(&entry->has_loss, &entry->loss, value);
    else if (strcmp(name, "auxiliary-loss") == 0)
        take_loss(&entry->has_auxiliary_loss, &entry->auxiliary_loss, value);
    else if (strcmp(name, "validation-loss") == 0)
        take_loss(&entry->has_validation_loss, &entry->validation_loss, value);
    return MP_OK;
}
