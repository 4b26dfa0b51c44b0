#include "harness/place/decide.h"

#include <math.h>
#include <string.h>

#include "reference/base/arena.h"

const int mp_decide_lags[MP_DECIDE_LAGS] = {1, 2, 5, 10, 20, 50, 100, 200};

const char *mp_decide_reason_name(enum mp_decide_reason reason) {
    static const char *const names[] = {"saves", "even",      "memory", "dominant",
                                        "stale", "no-change", "cost"};
    return names[reason];
}

/* The iterations of a history, 1 .. all of them. */
static int64_t history_of(const struct mp_place_loads *loads, double share) {
    int64_t history = (int64_t)floor(share * (double)loads->iterations + 1e-9);
    return history < 1 ? 1 : history > loads->iterations ? loads->iterations : history;
}

void mp_decision_destroy(struct mp_decision *decision) {
    mp_arena_release(&decision->memory);
    *decision = (struct mp_decision){0};
}

/* ---- what is hot, who is late, for how long ---- */

/* Follows one thing from iteration to iteration. */
struct follower {
    struct mp_decide_runs runs;
    int64_t run; /* it has been on for so long */
    double sum;
};

static void follow(struct follower *follower, bool on, double times_mean) {
    follower->runs.of++;
    follower->runs.on += on;
    follower->runs.runs += on && follower->run == 0;
    follower->run = on ? follower->run + 1 : 0;
    if (follower->run > follower->runs.longest)
        follower->runs.longest = follower->run;
    follower->sum += times_mean;
}

/* Adds it to all, and to the places with most iterations on (then the fuller), if it is one. */
static void rank_place(const struct follower *follower, int layer, int which,
                       struct mp_decide_runs *all, struct mp_decide_place place[], int *count) {
    const struct mp_decide_runs *runs = &follower->runs;
    struct mp_decide_place own = {layer, which, *runs, follower->sum / (double)runs->of};
    all->on += runs->on;
    all->runs += runs->runs;
    all->longest = runs->longest > all->longest ? runs->longest : all->longest;
    if (runs->on == 0)
        return;
    int at = *count;
    while (at > 0 && (place[at - 1].runs.on < runs->on ||
                      (place[at - 1].runs.on == runs->on && place[at - 1].mean < own.mean))) {
        if (at < MP_DECIDE_PLACES)
            place[at] = place[at - 1];
        at--;
    }
    if (at < MP_DECIDE_PLACES)
        place[at] = own;
    *count += *count < MP_DECIDE_PLACES;
}

struct look {
    const struct mp_place_loads *loads;
    const struct mp_place_map *map; /* where experts are without a system */
    struct mp_decision *decision;
    int32_t *slots;          /* [experts] */
    double *load;            /* [ranks] */
    struct follower *expert; /* [experts] */
    struct follower *rank;   /* [ranks] */
    bool *ever;              /* [ranks] gets a route in some layer */
    double experts_sum, ranks_sum;
    int64_t blocks;
};

static int working_ranks(const struct look *look, int layer, bool working[]) {
    const bool *never = look->loads->never + (long)layer * look->loads->experts;
    int count = 0;
    for (int rank = 0; rank < look->map->ranks; rank++) {
        working[rank] = !mp_place_is_idle(look->map, layer, rank, never);
        count += working[rank];
        look->ever[rank] |= working[rank];
    }
    return count;
}

/* One layer of one iteration. */
static void look_at(struct look *look, int layer, int64_t iteration, int experts, int ranks,
                    const bool working[]) {
    struct mp_decision *decision = look->decision;
    const int64_t *total = mp_place_total(look->loads, iteration, layer);
    const bool *never = look->loads->never + (long)layer * look->loads->experts;
    double sum = 0, most = 0, rank_most = 0;
    for (int e = 0; e < look->loads->experts; e++) {
        sum += (double)total[e];
        most = (double)total[e] > most ? (double)total[e] : most;
    }
    if (sum <= 0)
        return;
    const double expert_mean = sum / experts, rank_mean = sum / ranks;
    for (int e = 0; e < look->loads->experts; e++)
        if (!never[e])
            follow(&look->expert[e], (double)total[e] >= MP_DECIDE_HOT * expert_mean,
                   (double)total[e] / expert_mean);
    mp_place_rank_loads(look->map, layer, total, look->slots, look->load);
    for (int r = 0; r < look->map->ranks; r++) {
        rank_most = look->load[r] > rank_most ? look->load[r] : rank_most;
        if (working[r])
            follow(&look->rank[r], look->load[r] >= MP_DECIDE_LATE * rank_mean,
                   look->load[r] / rank_mean);
    }
    decision->late.of++;
    decision->late_steps += rank_most >= MP_DECIDE_LATE * rank_mean;
    decision->dominated += most >= MP_DECIDE_LATE * rank_mean;
    look->experts_sum += most / expert_mean;
    look->ranks_sum += rank_most / rank_mean;
    look->blocks++;
}

static void look_at_layer(struct look *look, int layer, bool working[]) {
    const struct mp_place_loads *loads = look->loads;
    struct mp_decision *decision = look->decision;
    const bool *never = loads->never + (long)layer * loads->experts;
    int experts = 0, ranks = working_ranks(look, layer, working);
    memset(look->expert, 0, (size_t)loads->experts * sizeof *look->expert);
    memset(look->rank, 0, (size_t)loads->ranks * sizeof *look->rank);
    for (int e = 0; e < loads->experts; e++)
        experts += !never[e];
    decision->padding += loads->experts - experts;
    for (int64_t i = 0; i < loads->iterations; i++)
        look_at(look, layer, i, experts, ranks, working);
    for (int e = 0; e < loads->experts; e++)
        if (!never[e])
            rank_place(&look->expert[e], layer, e, &decision->hot, decision->hottest,
                       &decision->hottest_count);
    for (int r = 0; r < loads->ranks; r++)
        if (working[r])
            rank_place(&look->rank[r], layer, r, &decision->late, decision->latest,
                       &decision->latest_count);
}

static int look_at_all(const struct mp_place_loads *loads, const struct mp_place_map *map,
                       struct mp_decision *decision, struct mp_error *error) {
    const size_t experts = (size_t)loads->experts, ranks = (size_t)loads->ranks;
    struct look look = {.loads = loads, .map = map, .decision = decision};
    MP_AUTO(arena) struct mp_arena arena = {0};
    bool *working;
    MP_TAKE_EACH(&arena, ranks, working, look.load, look.rank, look.ever);
    MP_TAKE_EACH(&arena, experts, look.slots, look.expert);
    MP_TRY(mp_arena_check(&arena, error));
    for (int layer = 0; layer < loads->layers; layer++)
        look_at_layer(&look, layer, working);
    for (size_t r = 0; r < ranks; r++)
        decision->idle += !look.ever[r];
    decision->expert_balance = look.experts_sum / (double)look.blocks;
    decision->rank_balance = look.ranks_sum / (double)look.blocks;
    return MP_OK;
}

/* ---- what a placement is worth later ---- */

struct stale {
    const struct mp_place_loads *loads;
    const struct mp_place_map *before;
    struct mp_decision *decision;
    int64_t first, last, changes; /* steps after which homes changed */
};

/* Mean over layers of one iteration. */
static int balance_at(const struct stale *stale, const struct mp_place_map *map, int64_t iteration,
                      double *mean, struct mp_error *error) {
    struct mp_place_balance balance;
    MP_AUTO(arena) struct mp_arena memory = {0};
    MP_TRY(mp_place_balance(stale->loads, iteration, iteration + 1, map, &memory, &balance, error));
    *mean = isnan(balance.mean) ? 0 : balance.mean;
    return MP_OK;
}

static int judge_later(void *context, int64_t step, const struct mp_place_map *map,
                       struct mp_error *error) {
    struct stale *stale = context;
    const struct mp_place_loads *loads = stale->loads;
    stale->first = stale->changes ? stale->first : step;
    stale->last = step;
    stale->changes++;
    if (step > loads->iterations) /* repeated: there is nothing later */
        return MP_OK;
    for (int i = 0; i < MP_DECIDE_LAGS; i++) {
        struct mp_decide_lag *lag = &stale->decision->lag[i];
        int64_t later = step - 1 + mp_decide_lags[i];
        double before, after;
        if (later >= loads->iterations)
            break;
        MP_TRY(balance_at(stale, stale->before, later, &before, error));
        MP_TRY(balance_at(stale, map, later, &after, error));
        lag->samples++;
        lag->before += before;
        lag->after += after;
    }
    return MP_OK;
}

static int find_staleness(const struct mp_place_loads *loads, struct mp_decision *decision,
                          struct mp_error *error) {
    struct stale stale = {loads, &decision->placed.before, decision, 0, 0, 0};
    const struct mp_place_watch watch = {&stale, judge_later};
    struct mp_placed placed;
    MP_TRY(mp_place_plan(loads, loads->iterations, &watch, &decision->memory, &placed, error));
    for (int i = 0; i < MP_DECIDE_LAGS; i++)
        if (decision->lag[i].samples) {
            decision->lag[i].before /= (double)decision->lag[i].samples;
            decision->lag[i].after /= (double)decision->lag[i].samples;
        }
    if (stale.changes > 1)
        decision->interval = (double)(stale.last - stale.first) / (double)(stale.changes - 1);
    return MP_OK;
}

/* ---- what it saves ---- */

static int judge(const struct mp_place_loads *loads, int64_t from, const struct mp_place_map *map,
                 struct mp_arena *memory, struct mp_decide_side *side, struct mp_error *error) {
    const int64_t to = loads->iterations;
    MP_TRY(mp_place_predict(loads, from, to, map, NULL, &side->time, error));
    MP_TRY(mp_place_balance(loads, from, to, map, memory, &side->balance, error));
    return mp_place_traffic(loads, from, to, map, memory, &side->traffic, error);
}

static int judge_all(const struct mp_place_loads *loads, int64_t from, struct mp_decision *decision,
                     struct mp_error *error) {
    const struct mp_place_map *before = &decision->placed.before, *after = &decision->placed.after;
    struct mp_place_time moving;
    MP_TRY(judge(loads, from, before, &decision->memory, &decision->before, error));
    MP_TRY(judge(loads, from, after, &decision->memory, &decision->after, error));
    MP_TRY(mp_place_predict(loads, from, from + 1, before, after, &moving, error));
    if (!decision->in_sample || decision->placed.changes == 0)
        MP_TRY(
            mp_place_predict_system(loads, from, loads->iterations, &decision->time_system, error));
    if (moving.first > decision->before.time.first)
        decision->move_seconds = moving.first - decision->before.time.first;
    return MP_OK;
}

/* Of the system at work, moves included, and planning as measured; where it moves experts and no
 * later loads are known, the placement's, before any cost. */
static double share_saved(const struct mp_decision *decision) {
    double before = decision->before.time.mean, after = decision->after.time.mean;
    if (decision->time_system.mean > 0) {
        after = decision->time_system.mean;
        after += decision->interval > 0 ? decision->placed.plan_seconds / decision->interval : 0;
    }
    return (before - after) / before;
}

/* Of the imbalance, what is left away at the nearest lag that is not before a placement arrives:
 * the first one. */
static bool is_stale(const struct mp_decision *decision) {
    return decision->lag[0].samples && mp_decide_benefit(&decision->lag[0]) < 0.25;
}

static enum mp_decide_reason find_reason(const struct mp_decision *decision) {
    const struct mp_memory *after = &decision->after.time.memory;
    if (decision->late_steps * 20 < decision->late.of)
        return MP_DECIDE_EVEN;
    if (after->total > after->limit)
        return MP_DECIDE_MEMORY;
    if (decision->saves >= MP_DECIDE_WORTH)
        return MP_DECIDE_SAVES;
    if (decision->dominated * 2 > decision->late_steps && !decision->replicates)
        return MP_DECIDE_DOMINANT;
    if (decision->placed.changes == 0)
        return MP_DECIDE_NO_CHANGE;
    return is_stale(decision) ? MP_DECIDE_STALE : MP_DECIDE_COST;
}

static int decide(const struct mp_place_loads *loads, double history, struct mp_decision *decision,
                  struct mp_error *error) {
    struct mp_placed *placed = &decision->placed;
    *decision = (struct mp_decision){.iterations = loads->iterations,
                                     .history = history_of(loads, history)};
    decision->in_sample = decision->history == loads->iterations;
    const int64_t from = decision->in_sample ? 0 : decision->history;
    MP_TRY(mp_place_plan(loads, decision->history, NULL, &decision->memory, placed, error));
    decision->replicates = placed->copies > 0;
    MP_TRY(look_at_all(loads, &placed->before, decision, error));
    MP_TRY(find_staleness(loads, decision, error));
    MP_TRY(judge_all(loads, from, decision, error));
    decision->saves = share_saved(decision);
    decision->reason = find_reason(decision);
    return MP_OK;
}

int mp_decide(const struct mp_place_loads *loads, double history, struct mp_decision *decision,
              struct mp_error *error) {
    int code = decide(loads, history, decision, error);
    if (code)
        mp_decision_destroy(decision);
    return code;
}
