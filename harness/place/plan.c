/* The planner over a history, and what its placement takes in slots, bytes and moves. */
#include <string.h>

#include "harness/place/place.h"
#include "profiler/record/record.h"
#include "reference/plan/layouts.h"

static int create_planner(const struct mp_place_loads *loads, struct mp_planner *planner,
                          struct mp_placed *placed, struct mp_error *error) {
    const struct mp_predict_job *job = loads->job;
    MP_AUTO(costs) struct mp_costs *costs = NULL;
    if (mp_job_shards(&job->file.job) > 1)
        return mp_fail(error, MP_EINVAL,
                       "expert-shards: %d; a placement is of whole experts, so it has to go",
                       job->file.job.expert_shards);
    MP_TRY(mp_costs_create(loads->cluster, &job->file.job, &job->options, &costs, error));
    placed->expert_bytes = costs->sizes.expert;
    return mp_predict_planner(costs, &job->file, job->file.job.check_plans, planner, error);
}

/* One iteration; *changed: whether homes did. */
static int step(const struct mp_place_loads *loads, int64_t iteration, int64_t number,
                struct mp_planner *planner, bool *changed, struct mp_error *error) {
    const struct mp_load *load = loads->load + iteration * loads->micro_batches * loads->layers;
    for (int layer = 0; layer < loads->layers; layer++) {
        MP_TRY(mp_planner_begin_layer(planner, number, layer, error));
        MP_TRY(mp_planner_end_layer(planner, layer, &load[layer], error));
    }
    MP_TRY(
        mp_planner_after_step(planner, number, loads->learnt + iteration * loads->layers, error));
    *changed = false;
    for (int layer = 0; layer < loads->layers && planner->change.changed && !*changed; layer++)
        *changed = !mp_placement_equal(&planner->home[layer], &planner->change.next[layer]);
    mp_planner_adopt_homes(planner);
    return MP_OK;
}

/* ---- slots ---- */

/* Whether a layer's slots, none of them empty, are on just the ranks that hold their experts. */
static bool are_slots_of(const struct mp_place_map *map, int layer, const struct mp_placement *home,
                         bool has[]) {
    const int32_t *slot = mp_place_slots(map, layer);
    for (int rank = 0; rank < map->ranks; rank++, slot += map->per_rank) {
        memset(has, false, (size_t)map->experts * sizeof *has);
        for (int i = 0; i < map->per_rank; i++) {
            if (slot[i] < 0)
                return false;
            has[slot[i]] = true;
        }
        for (int expert = 0; expert < map->experts; expert++)
            if (has[expert] != mp_placement_holds(home, expert, rank))
                return false;
    }
    return true;
}

/* Copies the saved slots, if they are those of the homes; else the map stays empty. */
static int take_slots(const struct mp_saved_layouts *saved, const struct mp_planner *planner,
                      struct mp_arena *memory, struct mp_place_map *map, struct mp_error *error) {
    const struct mp_setting *setting = &planner->setting;
    const size_t slots = (size_t)setting->layers * (size_t)saved->ranks * (size_t)saved->per_rank;
    bool *has, same = true;
    *map = (struct mp_place_map){setting->layers, saved->ranks, setting->experts, saved->per_rank,
                                 NULL};
    MP_TAKE(memory, has, setting->experts);
    MP_TAKE(memory, map->expert, slots);
    MP_TRY(mp_arena_check(memory, error));
    memcpy(map->expert, saved->expert, slots * sizeof(int32_t));
    for (int layer = 0; layer < setting->layers && same; layer++)
        same = are_slots_of(map, layer, &planner->home[layer], has);
    map->expert = same ? map->expert : NULL;
    return MP_OK;
}

/* The slots in a state that a system has saved, if it saves such (layouts.h), whatever system it
 * is: homes don't tell that an expert has two slots of a rank. */
static int read_slots(const void *state, size_t size, const struct mp_planner *planner,
                      struct mp_arena *memory, struct mp_place_map *map, struct mp_error *error) {
    const struct mp_setting *setting = &planner->setting;
    const int ranks = setting->topology.ranks;
    struct mp_saved_layouts saved;
    struct mp_layouts any;
    struct mp_error none = {0};
    char magic[8] = "";
    mp_layouts_create(memory, setting->layers, ranks, setting->experts, 1, 0, &any);
    MP_TRY(mp_arena_check(memory, error));
    memcpy(magic, state, size < sizeof magic ? size : sizeof magic);
    return !mp_layouts_read(&any, "a system", magic, state, size, &saved, &none) &&
                   saved.ranks == ranks
               ? take_slots(&saved, planner, memory, map, error)
               : MP_OK;
}

/* The planner's own slots where it has some, or those that its homes stand for. */
static int find_map(const struct mp_planner *planner, const int64_t weight[],
                    struct mp_arena *memory, struct mp_place_map *map, struct mp_error *error) {
    const struct mp_system *system = planner->system;
    const size_t size = system->save ? system->save(planner->self, NULL, 0) : 0;
    *map = (struct mp_place_map){0};
    if (size) {
        void *state = mp_arena_take(memory, size, 1);
        MP_TRY(mp_arena_check(memory, error));
        system->save(planner->self, state, size);
        MP_TRY(read_slots(state, size, planner, memory, map, error));
    }
    return map->expert ? MP_OK
                       : mp_place_map_of_homes(planner->home, planner->setting.layers, weight,
                                               memory, map, error);
}

/* ---- the history ---- */

static int plan_history(const struct mp_place_loads *loads, int64_t history,
                        const struct mp_place_watch *watch, const int64_t weight[],
                        struct mp_planner *planner, struct mp_placed *placed,
                        struct mp_error *error) {
    double seconds = 0;
    while (placed->steps < history || (placed->changes == 0 && placed->steps < MP_PLACE_STEPS)) {
        bool changed;
        int64_t began = mp_clock_ns();
        MP_TRY(step(loads, placed->steps % history, loads->job->first_iteration + placed->steps,
                    planner, &changed, error));
        placed->steps++;
        if (!changed)
            continue;
        seconds += 1e-9 * (double)(mp_clock_ns() - began);
        placed->changes++;
        if (!watch)
            continue;
        struct mp_place_map map;
        MP_AUTO(arena) struct mp_arena own = {0};
        MP_TRY(find_map(planner, weight, &own, &map, error));
        MP_TRY(watch->changed(watch->context, placed->steps, &map, error));
    }
    placed->plan_seconds = placed->changes ? seconds / (double)placed->changes : 0;
    return MP_OK;
}

/* Experts of `after` that ranks don't have in `before`. */
static int count_moves(struct mp_placed *placed, struct mp_arena *memory, struct mp_error *error) {
    const struct mp_place_map *before = &placed->before, *after = &placed->after;
    bool *has;
    double *received;
    MP_TAKE(memory, has, after->experts);
    MP_TAKE(memory, received, after->ranks);
    MP_TRY(mp_arena_check(memory, error));
    for (int layer = 0; layer < after->layers; layer++)
        for (int rank = 0; rank < after->ranks; rank++) {
            const int32_t *old = mp_place_slots(before, layer) + (long)rank * before->per_rank;
            const int32_t *new = mp_place_slots(after, layer) + (long)rank * after->per_rank;
            memset(has, false, (size_t)after->experts * sizeof *has);
            for (int i = 0; i < before->per_rank; i++)
                if (old[i] >= 0)
                    has[old[i]] = true;
            for (int i = 0; i < after->per_rank; i++)
                if (new[i] >= 0 && !has[new[i]]) {
                    has[new[i]] = true;
                    received[rank]++;
                    placed->moved++;
                }
        }
    for (int rank = 0; rank < after->ranks; rank++)
        if (received[rank] * placed->expert_bytes > placed->move_bytes_most)
            placed->move_bytes_most = received[rank] * placed->expert_bytes;
    return MP_OK;
}

/* Routes of the history, [layers][experts]; NULL: no memory. */
static int64_t *sum_history(const struct mp_place_loads *loads, int64_t history,
                            struct mp_arena *memory) {
    const size_t columns = (size_t)loads->layers * (size_t)loads->experts;
    int64_t *sum;
    MP_TAKE(memory, sum, columns);
    for (int64_t i = 0; sum && i < history; i++)
        for (size_t column = 0; column < columns; column++)
            sum[column] += mp_place_total(loads, i, 0)[column];
    return sum;
}

int mp_place_plan(const struct mp_place_loads *loads, int64_t history,
                  const struct mp_place_watch *watch, struct mp_arena *memory,
                  struct mp_placed *placed, struct mp_error *error) {
    const struct mp_system *system = loads->job->file.system;
    MP_AUTO(planner) struct mp_planner planner = {0};
    *placed = (struct mp_placed){0};
    if (!(system->capabilities & MP_SYSTEM_MOVES_OWNERS))
        return mp_fail(error, MP_EREFUSED,
                       "%s never changes which ranks keep which experts, so there is no placement "
                       "of its to write; systems that do have the word moves-owners in moeperf "
                       "list systems, as eplb",
                       system->name);
    MP_TRY(create_planner(loads, &planner, placed, error));
    const int64_t *weight = sum_history(loads, history, memory);
    MP_TRY(mp_arena_check(memory, error));
    MP_TRY(plan_history(loads, history, watch, weight, &planner, placed, error));
    MP_TRY(mp_place_map_contiguous(loads->layers, loads->ranks, loads->experts, memory,
                                   &placed->before, error));
    MP_TRY(find_map(&planner, weight, memory, &placed->after, error));
    placed->copies = placed->after.ranks * placed->after.per_rank - loads->experts;
    return count_moves(placed, memory, error);
}
