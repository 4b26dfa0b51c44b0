#include "results/store/recording.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/base/imbalance.h"
#include "reference/base/median.h"
#include "results/store/internal.h"

/* Phases between iterations, which no ITERATION span encloses. */
static inline bool lies_beside_iterations(int phase) {
    return phase == MP_PHASE_VALIDATE || phase == MP_PHASE_CHECKPOINT;
}

/* One rank in one iteration. */
struct rank_iteration {
    bool complete; /* its span of phase ITERATION is there */
    int64_t start_ns, end_ns;
    int64_t wait_ns;        /* as the ITERATION span says */
    int64_t phases_wait_ns; /* as the phases inside it say */
    int64_t tokens;         /* -1: not recorded */
    int64_t routes;         /* computed: forward EXPERT spans */
    bool uncounted;         /* one of them does not say how many */
};

/* One iteration over the ranks that completed it, once all are there. */
struct iteration_row {
    int ranks;
    bool complete; /* by every recorded rank */
    bool counts;   /* complete, and the run had the machine for itself */
    int64_t start_ns, end_ns;
    double ms, wait_ms;
    int64_t tokens; /* -1: a rank did not record them */
    int slowest_rank;
    double straggler_ms;
    double imbalance; /* NAN: no routes */
    bool steady;
    double weight; /* how often it counts in the phases' sums */
};

enum { LOSS, AUXILIARY_LOSS, VALIDATION_LOSS, LOSSES };
struct iteration_entry {
    struct iteration_row row;
    bool has_loss[LOSSES];
    double loss[LOSSES];
    struct rank_iteration rank[]; /* [ranks] */
};

/* One rank in one phase of one layer of one iteration. */
struct cell {
    int64_t busy_ns, wait_ns; /* stream compute */
    int64_t in_flight_ns;     /* stream comm */
    int64_t forward_tokens, backward_tokens;
    bool computed, has_forward_tokens, has_backward_tokens;
};

struct layer_entry {
    int experts;
    int64_t *routes; /* [experts], over all source ranks */
    int64_t dropped;
};

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
    MP_TAKE(&summary->memory, summary->recorded, ranks);
    keyed_init(&summary->iterations,
               sizeof(struct iteration_entry) + (size_t)ranks * sizeof(struct rank_iteration));
    keyed_init(&summary->cells, (size_t)ranks * sizeof(struct cell));
    keyed_init(&summary->layers, sizeof(struct layer_entry));
    return mp_arena_check(&summary->memory, error);
}

void summary_free(struct summary *summary) {
    keyed_free(&summary->iterations);
    keyed_free(&summary->cells);
    keyed_free(&summary->layers);
    mp_arena_release(&summary->memory);
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
        int64_t *routes;
        MP_TAKE(&summary->memory, routes, experts);
        MP_TRY(mp_arena_check(&summary->memory, error));
        for (int e = 0; e < entry->experts; e++)
            routes[e] = entry->routes[e];
        entry->routes = routes;
        entry->experts = experts;
    }
    for (int e = 0; e < experts; e++) {
        entry->routes[e] += record->as.load.routes[e];
        entry->dropped += record->as.load.dropped ? record->as.load.dropped[e] : 0;
    }
    return MP_OK;
}

int summary_add_number(struct summary *summary, const struct mp_spool_record *record,
                       struct mp_error *error) {
    static const char *const losses[LOSSES] = {"loss", "auxiliary-loss", "validation-loss"};
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
    for (int l = 0; l < LOSSES; l++)
        if (strcmp(name, losses[l]) == 0 && !entry->has_loss[l]) {
            entry->has_loss[l] = true; /* ranks ascend: the lowest that recorded one counts */
            entry->loss[l] = value;
        }
    return MP_OK;
}

/* ==== rows of what was collected ==== */

static const double NS_PER_MS = 1e6;

/* ---- iterations ---- */

static int64_t wait_of(const struct rank_iteration *own) {
    return own->wait_ns > own->phases_wait_ns ? own->wait_ns : own->phases_wait_ns;
}

/* Whether the run had the machine for itself all that time. */
static bool is_in_slice(const struct summary *summary, int64_t start_ns, int64_t end_ns) {
    const int after = MP_BISECT(i, summary->slices, summary->slice[i].start_ns <= start_ns);
    return !summary->slice || (after > 0 && end_ns <= summary->slice[after - 1].end_ns);
}

static struct iteration_row iteration_row_of(const struct summary *summary,
                                             const struct iteration_entry *entry) {
    struct iteration_row row = {.complete = true, .slowest_rank = -1};
    int64_t longest_ns = 0, most_routes = 0;
    double busy_sum = 0, most_busy = 0, routes = 0;
    for (int r = 0; r < summary->ranks; r++) {
        const struct rank_iteration *own = &entry->rank[r];
        if (!own->complete) {
            row.complete = row.complete && !summary->recorded[r];
            continue;
        }
        int64_t duration = own->end_ns - own->start_ns;
        int64_t wait = wait_of(own) < duration ? wait_of(own) : duration;
        double busy = (double)(duration - wait);
        if (row.slowest_rank < 0 || busy > most_busy) {
            most_busy = busy;
            row.slowest_rank = r;
        }
        busy_sum += busy;
        longest_ns = duration > longest_ns ? duration : longest_ns;
        row.end_ns = !row.ranks || own->end_ns > row.end_ns ? own->end_ns : row.end_ns;
        row.start_ns = !row.ranks || own->start_ns < row.start_ns ? own->start_ns : row.start_ns;
        row.tokens = row.tokens < 0 || own->tokens < 0 ? -1 : row.tokens + own->tokens;
        row.wait_ms += (double)wait / NS_PER_MS;
        routes += own->uncounted ? NAN : (double)own->routes;
        most_routes = own->routes > most_routes ? own->routes : most_routes;
        row.ranks++;
    }
    row.complete = row.complete && row.ranks > 0;
    row.counts = row.complete && is_in_slice(summary, row.start_ns, row.end_ns);
    if (row.ranks > 0) {
        int64_t span_ns = summary->clocks_comparable ? row.end_ns - row.start_ns : longest_ns;
        row.ms = (double)span_ns / NS_PER_MS;
        row.straggler_ms = (most_busy - busy_sum / row.ranks) / NS_PER_MS;
    }
    row.imbalance = routes > 0 ? (double)most_routes * row.ranks / routes : NAN;
    return row;
}

/* Complete iterations that don't count as steady: a tenth, rounded up, and at least the first. */
static int64_t warm_up_of(int64_t complete) {
    int64_t tenth = (complete + 9) / 10;
    return tenth > 1 ? tenth : 1;
}

/* Fills in every iteration's row; returns how many are complete. */
static int64_t find_rows(struct summary *summary) {
    int64_t complete = 0, counted = 0, position = 0;
    uint64_t key;
    for (size_t i = 0; i < summary->iterations.count; i++) {
        struct iteration_entry *entry = keyed_value(&summary->iterations, i);
        entry->row = iteration_row_of(summary, entry);
        complete += entry->row.complete;
        counted += entry->row.counts;
    }
    /* All iterations together are to take what they would have taken uninterrupted: of some that
     * were interrupted none counts, and the others more than once. */
    bool all_count = counted == 0 || counted == complete;
    for (size_t i = 0; i < summary->iterations.count; i++) {
        struct iteration_entry *entry = keyed_nth(&summary->iterations, i, &key);
        struct iteration_row *row = &entry->row;
        row->steady = row->complete && position++ >= warm_up_of(complete) && row->counts;
        row->weight = all_count ? 1 : row->counts ? (double)complete / (double)counted : 0;
    }
    return complete;
}

static int write_run(struct summary *summary, struct mp_store *store, int64_t run_id,
                     struct mp_error *error) {
    const int64_t complete = find_rows(summary);
    int64_t steady = 0;
    double *ms, tokens = 0, loss_final = NAN;
    MP_TAKE(&summary->memory, ms, summary->iterations.count + 1);
    MP_TRY(mp_arena_check(&summary->memory, error));
    for (size_t i = 0; i < summary->iterations.count; i++) {
        uint64_t key;
        const struct iteration_entry *entry = keyed_nth(&summary->iterations, i, &key);
        if (entry->row.ranks > 0 && entry->has_loss[LOSS])
            loss_final = entry->loss[LOSS];
        if (!entry->row.steady)
            continue;
        ms[steady++] = entry->row.ms;
        tokens += entry->row.tokens < 0 ? NAN : (double)entry->row.tokens;
    }
    double median = mp_median_of(ms, steady), per_s = tokens / (double)steady / (median / 1e3);
    const int64_t shares = summary->ranks_share_cores;
    return STORE_PUT(store, "cannot store the run's summary", error,
                     "INSERT INTO run_summary VALUES (?, ?, ?, ?, ?, ?, ?)", V(run_id), V(complete),
                     V(steady), V(median), V(isfinite(per_s) && tokens > 0 ? per_s : NAN),
                     V(loss_final), store_if(shares >= 0, shares));
}

static int write_iterations(struct summary *summary, struct mp_store *store, int64_t run_id,
                            struct mp_error *error) {
    for (size_t i = 0; i < summary->iterations.count; i++) {
        uint64_t key;
        const struct iteration_entry *entry = keyed_nth(&summary->iterations, i, &key);
        const struct iteration_row *row = &entry->row;
        if (row->ranks == 0)
            continue;
        double loss[LOSSES];
        for (int l = 0; l < LOSSES; l++)
            loss[l] = entry->has_loss[l] ? entry->loss[l] : NAN;
        MP_TRY(STORE_PUT(store, "cannot store iterations", error,
                         "INSERT INTO iteration_summary VALUES "
                         "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                         V(run_id), V(keyed_iteration(key)), V(row->ranks), V(row->steady),
                         V(row->start_ns - summary->origin_ns), V(row->ms),
                         store_if(row->tokens >= 0, row->tokens), V(loss[0]), V(loss[1]),
                         V(loss[2]), V(row->slowest_rank), V(row->straggler_ms), V(row->imbalance),
                         V(row->wait_ms)));
    }
    return MP_OK;
}

/* ---- stragglers ---- */

struct straggler_rows {
    struct summary *summary;
    const int64_t *phase_ids;
    size_t position;
    int64_t run_id;
};

/* Whether a rank that has no span of its experts in a layer takes part in the layer: then it had no
 * tokens there, which is more to know than nothing. */
static bool had_no_tokens(const struct straggler_rows *rows, uint64_t key, int rank) {
    if (keyed_phase(key) != MP_PHASE_EXPERT || keyed_layer(key) < 0)
        return false;
    for (int phase = 0; phase < MP_PHASES; phase++) {
        const struct cell *cells =
            keyed_find(&rows->summary->cells,
                       keyed_key(keyed_iteration(key), keyed_layer(key), (enum mp_phase)phase));
        if (cells && cells[rank].computed)
            return true;
    }
    return false;
}

/* The ranks of a row put together. */
struct straggler_sums {
    int64_t ranks, most, least, sum, wait, tokens;
    int slowest;
    bool counted; /* every rank says its tokens */
};

static void add_straggler(struct straggler_sums *sums, int rank, const struct cell *own,
                          bool forward) {
    if (sums->slowest < 0 || own->busy_ns > sums->most) {
        sums->most = own->busy_ns;
        sums->slowest = rank;
    }
    sums->least = !sums->ranks || own->busy_ns < sums->least ? own->busy_ns : sums->least;
    sums->sum += own->busy_ns;
    sums->wait += own->wait_ns;
    sums->ranks++;
    sums->tokens += forward ? own->forward_tokens : own->backward_tokens;
    sums->counted =
        sums->counted &&
        (!own->computed || (forward ? own->has_forward_tokens : own->has_backward_tokens));
}

/* false: no rank spent time of its own (operations in flight only). */
static bool fill_straggler_row(struct straggler_rows *rows, uint64_t key, const struct cell cells[],
                               int64_t row[ROW_COLUMNS]) {
    struct straggler_sums sums = {.slowest = -1, .counted = true};
    bool computed = false, forward = false;
    for (int r = 0; r < rows->summary->ranks; r++) {
        computed = computed || cells[r].computed;
        forward = forward || (cells[r].computed && cells[r].has_forward_tokens);
    }
    if (!computed)
        return false;
    for (int r = 0; r < rows->summary->ranks; r++)
        if (cells[r].computed || had_no_tokens(rows, key, r))
            add_straggler(&sums, r, &cells[r], forward);
    const struct cell *worst = &cells[sums.slowest];
    bool says =
        !worst->computed || (forward ? worst->has_forward_tokens : worst->has_backward_tokens);
    int64_t values[] = {rows->run_id,
                        keyed_iteration(key),
                        keyed_layer(key),
                        rows->phase_ids[keyed_phase(key)],
                        sums.ranks,
                        sums.most,
                        sums.sum,
                        sums.least,
                        sums.wait,
                        sums.slowest,
                        !says     ? ROW_NULL
                        : forward ? worst->forward_tokens
                                  : worst->backward_tokens,
                        sums.counted ? sums.tokens : ROW_NULL};
    for (size_t i = 0; i < MP_LENGTH(values); i++)
        row[i] = values[i];
    return true;
}

static int next_straggler_row(void *context, int64_t row[ROW_COLUMNS], struct mp_error *error) {
    (void)error;
    struct straggler_rows *rows = context;
    struct keyed *cells = &rows->summary->cells;
    while (rows->position < cells->count) {
        uint64_t key;
        const struct cell *cell = keyed_nth(cells, rows->position++, &key);
        if (fill_straggler_row(rows, key, cell, row))
            return 1;
    }
    return 0;
}

/* ---- imbalance ---- */

/* Largest over mean of the routes that the recorded ranks computed in a layer; NAN without any, and
 * where a rank that computed does not say how many. */
static double rank_imbalance(struct summary *summary, uint64_t key) {
    const struct cell *cells = keyed_find(
        &summary->cells, keyed_key(keyed_iteration(key), keyed_layer(key), MP_PHASE_EXPERT));
    double sum = 0, most = 0;
    int ranks = 0;
    for (int r = 0; cells && r < summary->ranks; r++) {
        bool uncounted = cells[r].computed && !cells[r].has_forward_tokens;
        double routes = uncounted ? NAN : (double)cells[r].forward_tokens;
        sum += routes;
        most = routes > most ? routes : most;
        ranks += summary->recorded[r];
    }
    return sum > 0 ? most * ranks / sum : NAN;
}

static int write_imbalance(struct summary *summary, struct mp_store *store, int64_t run_id,
                           struct mp_error *error) {
    for (size_t i = 0; i < summary->layers.count; i++) {
        uint64_t key;
        const struct layer_entry *entry = keyed_nth(&summary->layers, i, &key);
        const struct mp_imbalance found = mp_imbalance_of(entry->routes, entry->experts);
        int64_t routes = 0;
        for (int e = 0; e < entry->experts; e++)
            routes += entry->routes[e];
        const bool any = routes > 0;
        MP_TRY(STORE_PUT(store, "cannot store imbalance", error,
                         "INSERT INTO imbalance_summary VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                         V(run_id), V(keyed_iteration(key)), V(keyed_layer(key)), V(entry->experts),
                         V(routes), V(entry->dropped), V(found.max_over_mean),
                         V(any ? rank_imbalance(summary, key) : NAN), V(found.effective),
                         V(found.dead_fraction),
                         V(any ? (double)entry->dropped / (double)routes : NAN)));
    }
    return MP_OK;
}

/* ---- phases ---- */

struct phase_sums {
    bool seen[MP_PHASES];
    double exposed[MP_PHASES], overlapped[MP_PHASES], wait[MP_PHASES]; /* ns, over all ranks */
};

static void sum_phases(struct summary *summary, struct phase_sums *sums) {
    struct keyed *cells = &summary->cells;
    for (size_t i = 0; i < cells->count; i++) {
        uint64_t key = cells->keys[i];
        const struct cell *cell = keyed_value(cells, i);
        const struct iteration_entry *entry =
            keyed_find(&summary->iterations, keyed_key(keyed_iteration(key), -1, 0));
        int phase = keyed_phase(key);
        bool is_beside = lies_beside_iterations(phase);
        double weight = entry && !is_beside ? entry->row.weight : 1;
        for (int r = 0; entry && r < summary->ranks; r++) {
            if (!entry->rank[r].complete && !is_beside)
                continue;
            int64_t exposed = cell[r].busy_ns + cell[r].wait_ns;
            int64_t hidden = cell[r].in_flight_ns - exposed;
            sums->seen[phase] = sums->seen[phase] || exposed > 0 || hidden > 0;
            sums->exposed[phase] += weight * (double)exposed;
            sums->overlapped[phase] += hidden > 0 ? weight * (double)hidden : 0;
            sums->wait[phase] += weight * (double)cell[r].wait_ns;
        }
    }
}

static double iteration_sum(struct summary *summary) {
    double sum = 0;
    for (size_t i = 0; i < summary->iterations.count; i++) {
        const struct iteration_entry *entry = keyed_value(&summary->iterations, i);
        for (int r = 0; r < summary->ranks; r++)
            if (entry->rank[r].complete)
                sum +=
                    entry->row.weight * (double)(entry->rank[r].end_ns - entry->rank[r].start_ns);
    }
    return sum;
}

static int write_phases(struct summary *summary, struct mp_store *store, int64_t run_id,
                        const int64_t phase_ids[MP_PHASES], struct mp_error *error) {
    struct phase_sums sums = {0};
    sum_phases(summary, &sums);
    int ranks = 0;
    for (int r = 0; r < summary->ranks; r++)
        ranks += summary->recorded[r];
    double per_rank = NS_PER_MS * ranks, iteration_ms = iteration_sum(summary) / per_rank;
    for (int phase = 0; phase < MP_PHASES; phase++) {
        if (!sums.seen[phase])
            continue;
        MP_TRY(STORE_PUT(store, "cannot store phases", error,
                         "INSERT INTO phase_summary VALUES (?, ?, ?, ?, ?, ?, ?)", V(run_id),
                         V(phase_ids[phase]), V(sums.exposed[phase] / per_rank),
                         V(sums.overlapped[phase] / per_rank), V(sums.wait[phase] / per_rank),
                         V(lies_beside_iterations(phase) ? NAN : iteration_ms),
                         V(summary->phase_flops[phase])));
    }
    return MP_OK;
}

int summary_write(struct summary *summary, struct mp_store *store, int64_t run_id,
                  const int64_t phase_ids[MP_PHASES], struct mp_error *error) {
    MP_TRY(keyed_sort(&summary->iterations, error));
    MP_TRY(keyed_sort(&summary->cells, error));
    MP_TRY(keyed_sort(&summary->layers, error));
    MP_TRY(write_run(summary, store, run_id, error));
    MP_TRY(write_iterations(summary, store, run_id, error));
    struct straggler_rows rows = {summary, phase_ids, 0, run_id};
    struct row_source source = {.next = next_straggler_row, .context = &rows};
    MP_TRY(store_insert_rows(store,
                             "INSERT INTO straggler_summary SELECT c0, c1, c2, c3, c4, c5, c6, c7, "
                             "c8, c9, c10, c11 FROM moeperf_rows",
                             NULL, 0, &source, "cannot store stragglers", error));
    MP_TRY(write_imbalance(summary, store, run_id, error));
    return write_phases(summary, store, run_id, phase_ids, error);
}
