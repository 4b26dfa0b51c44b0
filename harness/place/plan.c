/* The planner over a history, and what its placement takes in slots, bytes and moves. */
#include <stdlib.h>
#include <string.h>

#include "harness/place/place.h"
#include "profiler/record/record.h"
#include "reference/plan/layouts.h"

void mp_placed_destroy(struct mp_placed *placed) {
    mp_place_map_destroy(&placed->before);
    mp_place_map_destroy(&placed->after);
    *placed = (struct mp_placed){0};
}

static int create_planner(const struct mp_place_loads *loads, struct mp_planner *planner,
                          struct mp_placed *placed, struct mp_error *error) {
    const struct mp_predict_job *job = loads->job;
    struct mp_costs *costs;
    if (mp_job_shards(&job->file.job) > 1)
        return mp_fail(error, MP_EINVAL,
                       "expert-shards: %d; a placement is of whole experts, so it has to go",
                       job->file.job.expert_shards);
    MP_TRY(mp_costs_create(loads->cluster, &job->file.job, &job->options, &costs, error));
    placed->expert_bytes = costs->sizes.expert;
    int code = mp_predict_planner(costs, &job->file, job->file.job.check_plans, planner, error);
    mp_costs_destroy(costs);
    return code;
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
                      struct mp_place_map *map, struct mp_error *error) {
    const struct mp_setting *setting = &planner->setting;
    const size_t slots = (size_t)setting->layers * (size_t)saved->ranks * (size_t)saved->per_rank;
    bool *has = calloc((size_t)setting->experts, sizeof *has);
    *map = (struct mp_place_map){setting->layers, saved->ranks, setting->experts, saved->per_rank,
                                 malloc(slots * sizeof(int32_t))};
    bool same = has && map->expert;
    int code = same ? MP_OK : mp_no_memory(error);
    if (same)
        memcpy(map->expert, saved->expert, slots * sizeof(int32_t));
    for (int layer = 0; layer < setting->layers && same; layer++)
        same = are_slots_of(map, layer, &planner->home[layer], has);
    if (!same)
        mp_place_map_destroy(map);
    free(has);
    return code;
}

/* The slots in a state that a system has saved, if it saves such (layouts.h), whatever system it
 * is: homes don't tell that an expert has two slots of a rank. */
static int read_slots(const void *state, size_t size, const struct mp_planner *planner,
                      struct mp_place_map *map, struct mp_error *error) {
    const struct mp_setting *setting = &planner->setting;
    const int ranks = setting->topology.ranks;
    struct mp_saved_layouts saved;
    struct mp_layouts any;
    struct mp_error none = {0};
    char magic[8] = "";
    struct mp_arena memory = {0};
    mp_layouts_create(&memory, setting->layers, ranks, setting->experts, 1, 0, &any);
    int code = mp_arena_check(&memory, error);
    memcpy(magic, state, size < sizeof magic ? size : sizeof magic);
    if (!code && !mp_layouts_read(&any, "a system", magic, state, size, &saved, &none) &&
        saved.ranks == ranks)
        code = take_slots(&saved, planner, map, error);
    mp_arena_release(&memory);
    return code;
}

/* The planner's own slots where it has some, or those that its homes stand for. */
static int find_map(const struct mp_planner *planner, const int64_t weight[],
                    struct mp_place_map *map, struct mp_error *error) {
    const struct mp_system *system = planner->system;
    const size_t size = system->save ? system->save(planner->self, NULL, 0) : 0;
    void *state = size ? malloc(size) : NULL;
    int code = size && !state ? mp_no_memory(error) : MP_OK;
    *map = (struct mp_place_map){0};
    if (state) {
        system->save(planner->self, state, size);
        code = read_slots(state, size, planner, map, error);
    }
    free(state);
    if (code || map->expert)
        return code;
    return mp_place_map_of_homes(planner->home, planner->setting.layers, weight, map, error);
}

/* ---- the history ---- */

static int plan_history(const struct mp_place_loads *loads, int64_t history,
                        const struct mp_place_watch *watch, const int64_t weight[],
                        struct mp_planner *planner, struct mp_placed *placed,
                        struct mp_error *error) {
    double seconds = 0;
    int code = MP_OK;
    while (!code &&
           (placed->steps < history || (placed->changes == 0 && placed->steps < MP_PLACE_STEPS))) {
        bool changed;
        int64_t began = mp_clock_ns();
        code = step(loads, placed->steps % history, loads->job->first_iteration + placed->steps,
                    planner, &changed, error);
        placed->steps++;
        if (code || !changed)
            continue;
        seconds += 1e-9 * (double)(mp_clock_ns() - began);
        placed->changes++;
        if (!watch)
            continue;
        struct mp_place_map map;
        code = find_map(planner, weight, &map, error);
        if (!code)
            code = watch->changed(watch->context, placed->steps, &map, error);
        mp_place_map_destroy(&map);
    }
    placed->plan_seconds = placed->changes ? seconds / (double)placed->changes : 0;
    return code;
}

/* Experts of `after` that ranks don't have in `before`. */
static int count_moves(struct mp_placed *placed, struct mp_error *error) {
    const struct mp_place_map *before = &placed->before, *after = &placed->after;
    bool *has = calloc((size_t)after->experts, sizeof *has);
    double *received = calloc((size_t)after->ranks, sizeof *received);
    const bool ready = has && received;
    for (int layer = 0; layer < after->layers && ready; layer++)
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
    for (int rank = 0; rank < after->ranks && ready; rank++)
        if (received[rank] * placed->expert_bytes > placed->move_bytes_most)
            placed->move_bytes_most = received[rank] * placed->expert_bytes;
    free(has);
    free(received);
    return ready ? MP_OK : mp_no_memory(error);
}

/* Routes of the history, [layers][experts]. */
static int64_t *sum_history(const struct mp_place_loads *loads, int64_t history) {
    const size_t columns = (size_t)loads->layers * (size_t)loads->experts;
    int64_t *sum = calloc(columns, sizeof *sum);
    for (int64_t i = 0; sum && i < history; i++)
        for (size_t column = 0; column < columns; column++)
            sum[column] += mp_place_total(loads, i, 0)[column];
    return sum;
}

int mp_place_plan(const struct mp_place_loads *loads, int64_t history,
                  const struct mp_place_watch *watch, struct mp_placed *placed,
                  struct mp_error *error) {
    const struct mp_system *system = loads->job->file.system;
    struct mp_planner planner = {0};
    *placed = (struct mp_placed){0};
    if (!(system->capabilities & MP_SYSTEM_MOVES_OWNERS))
        return mp_fail(error, MP_EREFUSED,
                       "%s never changes which ranks keep which experts, so there is no placement "
                       "of its to write; systems that do have the word moves-owners in moeperf "
                       "list systems, as eplb",
                       system->name);
    MP_TRY(create_planner(loads, &planner, placed, error));
    int64_t *weight = sum_history(loads, history);
    int code = weight ? plan_history(loads, history, watch, weight, &planner, placed, error)
                      : mp_no_memory(error);
    if (!code)
        code = mp_place_map_contiguous(loads->layers, loads->ranks, loads->experts, &placed->before,
                                       error);
    if (!code)
        code = find_map(&planner, weight, &placed->after, error);
    if (!code)
        code = count_moves(placed, error);
    placed->copies = placed->after.ranks * placed->after.per_rank - loads->experts;
    free(weight);
    mp_planner_destroy(&planner);
    if (code)
        mp_placed_destroy(placed);
    return code;
}
