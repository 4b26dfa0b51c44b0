/* Where: the phase, layer and rank that a difference in time sits in.
 *
 * Times are busy times (without waiting for others) of the steady iterations, per iteration; a
 * change is the median over the pairs, or between the medians of both sides.  The phase is the one
 * whose slowest change on any rank is largest; its layer and rank are named where they have most of
 * it.  A rank that waits longer is a consequence: only if no busy time explains a third of the
 * difference is waiting itself named. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/arena.h"
#include "reference/base/median.h"
#include "results/compare/internal.h"
#include "results/report/query.h"

enum { PHASE_NAME = 32, SIDES = 2, KINDS = 2, BUSY = 0, WAITING = 1 };

struct place {
    char phase[PHASE_NAME];
    int layer, rank;
    double *value[SIDES][KINDS]; /* [runs] ms per iteration */
    double change[KINDS];        /* head's median - base's */
};

struct places {
    struct mp_arena memory; /* of the places' values */
    struct place *item;     /* [count], owned */
    int count, runs[SIDES];
    bool paired; /* run i of base and of head belong together */
    int next;    /* where the next row is if this run has the same rows as the one before */
};
MP_END(places, struct places, (free(it->item), mp_arena_release(&it->memory)))

static const char busy_sql[] =
    "WITH steady AS MATERIALIZED (SELECT iteration FROM v_iteration WHERE run_id = ?1 AND steady = "
    "1), counted AS (SELECT max(count(*), 1) AS iterations FROM steady) SELECT phase, layer, rank, "
    "sum(end_ns - start_ns - wait_ns) / 1e6 / iterations, sum(wait_ns) / 1e6 / iterations FROM "
    "v_span CROSS JOIN counted WHERE run_id = ?1 AND stream = 'compute' AND phase <> 'iteration' "
    "AND iteration IN steady GROUP BY 1, 2, 3 ORDER BY 1, 2, 3";

static struct place *find_or_add(struct places *places, const char *phase, int layer, int rank) {
    for (int tried = 0; tried < places->count; tried++) {
        struct place *place = &places->item[(places->next + tried) % places->count];
        if (place->layer != layer || place->rank != rank || strcmp(place->phase, phase) != 0)
            continue;
        places->next = (int)(place - places->item) + 1;
        return place;
    }
    if (!MP_ROOM(places->item, places->count))
        return NULL;
    struct place *place = &places->item[places->count++];
    *place = (struct place){.layer = layer, .rank = rank};
    snprintf(place->phase, sizeof place->phase, "%s", phase);
    for (int i = 0; i < SIDES * KINDS; i++)
        MP_TAKE(&places->memory, place->value[i / KINDS][i % KINDS], places->runs[i / KINDS]);
    return places->memory.lacking ? NULL : place;
}

static int read_run(struct mp_store *store, int64_t run_id, struct places *places, int side,
                    int run, struct mp_error *error) {
    struct query query = query_begin(store, busy_sql, run_id, error);
    while (query_next(&query)) {
        struct place *place =
            find_or_add(places, query_text(query.row, 0), sqlite3_column_int(query.row, 1),
                        sqlite3_column_int(query.row, 2));
        if (!place) {
            query.code = mp_no_memory(error);
            break;
        }
        place->value[side][BUSY][run] = sqlite3_column_double(query.row, 3);
        place->value[side][WAITING][run] = sqlite3_column_double(query.row, 4);
    }
    return query_end(&query);
}

static bool is_of(const struct side_run *run, const char *job) {
    return run->complete && strcmp(run->job, job) == 0;
}

static int read_side(const struct side *side, const char *job, struct places *places, int number,
                     struct mp_error *error) {
    int run = 0;
    for (int i = 0; i < side->count; i++)
        if (is_of(&side->run[i], job))
            MP_TRY(read_run(side->store, side->run[i].run_id, places, number, run++, error));
    return MP_OK;
}

/* The values are used up: of pairs only their differences are left, on head's side. */
static void find_change(const struct places *places, struct place *place, int kind) {
    double *base = place->value[0][kind], *head = place->value[1][kind];
    if (places->paired)
        for (int i = 0; i < places->runs[0]; i++) {
            head[i] -= base[i];
            base[i] = 0;
        }
    place->change[kind] = mp_median_of(head, places->runs[1]) - mp_median_of(base, places->runs[0]);
}

/* Change of a phase (NULL: of all) on a rank over all its layers, times `sign`. */
static double change_of(const struct places *places, int kind, const char *phase, int rank,
                        double sign) {
    double sum = 0;
    for (int i = 0; i < places->count; i++) {
        const struct place *place = &places->item[i];
        if (place->rank == rank && (!phase || strcmp(place->phase, phase) == 0))
            sum += sign * place->change[kind];
    }
    return sum;
}

/* Whether an earlier place is of the same phase and rank. */
static bool is_repeated(const struct places *places, int i) {
    for (int k = i - 1; k >= 0 && strcmp(places->item[k].phase, places->item[i].phase) == 0; k--)
        if (places->item[k].rank == places->item[i].rank)
            return true;
    return false;
}

/* The rank of the largest change of a phase; any of its layers. */
static const struct place *find_phase(const struct places *places, int kind, double sign,
                                      double *largest) {
    const struct place *found = NULL;
    *largest = 0;
    for (int i = 0; i < places->count; i++) {
        const struct place *place = &places->item[i];
        if (is_repeated(places, i))
            continue;
        double change = change_of(places, kind, place->phase, place->rank, sign);
        if (change > *largest) {
            *largest = change;
            found = place;
        }
    }
    return found;
}

static void name_layer(const struct places *places, int kind, const struct place *of, double sign,
                       double whole, char *text, size_t size) {
    const struct place *most = NULL;
    for (int i = 0; i < places->count; i++) {
        const struct place *place = &places->item[i];
        if (place->rank == of->rank && strcmp(place->phase, of->phase) == 0 &&
            (!most || sign * place->change[kind] > sign * most->change[kind]))
            most = place;
    }
    if (!most || most->layer < 0)
        snprintf(text, size, "no layer");
    else if (2 * sign * most->change[kind] > whole)
        snprintf(text, size, "layer %d", most->layer);
    else
        snprintf(text, size, "all layers");
}

static void name_rank(const struct places *places, int kind, const struct place *of, double sign,
                      double whole, char *text, size_t size) {
    for (int i = 0; i < places->count; i++) {
        const struct place *place = &places->item[i];
        if (place->rank != of->rank && strcmp(place->phase, of->phase) == 0 &&
            2 * change_of(places, kind, of->phase, place->rank, sign) > whole) {
            snprintf(text, size, "all ranks alike, most on rank %d", of->rank);
            return;
        }
    }
    snprintf(text, size, "rank %d", of->rank);
}

static void write_place(const struct places *places, int kind, const struct place *place,
                        double sign, double change, bool is_spread, struct mp_gate_metric *metric) {
    char layer[32], rank[64];
    name_layer(places, kind, place, sign, change, layer, sizeof layer);
    name_rank(places, kind, place, sign, change, rank, sizeof rank);
    snprintf(metric->where, sizeof metric->where,
             "%sphase %s, %s, %s: %+.3f ms of %s per iteration; the job as a whole %+.3f ms",
             is_spread ? "spread over phases, most in " : "", place->phase, layer, rank,
             sign * change, kind == BUSY ? "work" : "waiting",
             metric->base * metric->evidence.effect);
}

int gate_locate(const struct comparison *comparison, struct mp_gate_metric *metric,
                struct mp_error *error) {
    MP_AUTO(places) struct places places = {0};
    const struct side *const sides[SIDES] = {&comparison->base, &comparison->head};
    double sign = metric->evidence.effect < 0 ? -1 : 1, busy, waiting;
    for (int s = 0; s < SIDES; s++)
        for (int i = 0; i < sides[s]->count; i++)
            places.runs[s] += is_of(&sides[s]->run[i], metric->job);
    places.paired = metric->evidence.samples.paired && places.runs[0] == places.runs[1];
    for (int s = 0; s < SIDES; s++)
        MP_TRY(read_side(sides[s], metric->job, &places, s, error));
    for (int i = 0; i < places.count; i++)
        for (int k = 0; k < KINDS; k++)
            find_change(&places, &places.item[i], k);
    const struct place *worker = find_phase(&places, BUSY, sign, &busy);
    const struct place *waiter = find_phase(&places, WAITING, sign, &waiting);
    double whole = fabs(metric->base * metric->evidence.effect);
    if (worker && 3 * busy >= whole)
        write_place(&places, BUSY, worker, sign, busy, false, metric);
    else if (worker && 2 * change_of(&places, BUSY, NULL, worker->rank, sign) >= whole)
        write_place(&places, BUSY, worker, sign, busy, true, metric);
    else if (waiter && waiting > busy)
        write_place(&places, WAITING, waiter, sign, waiting, false, metric);
    else
        snprintf(metric->where, sizeof metric->where, "no single phase has a third of it");
    return MP_OK;
}
