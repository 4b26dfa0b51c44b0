/* What a placement is worth on given loads: seconds and bytes. */
#include <stdlib.h>
#include <string.h>

#include "harness/place/place.h"
#include "reference/base/median.h"

/* Of iterations from `from` on; those before are the system's past. */
static int run(const struct mp_place_loads *loads, const struct mp_job_file *file, int64_t begin,
               int64_t from, int64_t to, struct mp_place_time *time, struct mp_error *error) {
    const struct mp_predict_job *job = loads->job;
    const struct mp_predictor_config config = {.cluster = loads->cluster,
                                               .job = file,
                                               .options = &job->options,
                                               .check_plans = job->file.job.check_plans,
                                               .first_iteration = job->first_iteration};
    MP_AUTO(predictor) struct mp_predictor *predictor = NULL;
    MP_AUTO(memory) double *seconds = NULL;
    struct mp_prediction prediction;
    double sum = 0;
    int rank;
    *time = (struct mp_place_time){0};
    MP_TRY(MP_NEW(seconds, to - from, error));
    MP_TRY(mp_predictor_create(&config, &predictor, error));
    for (int64_t i = begin; i < to; i++) {
        MP_TRY(mp_predictor_step(predictor, loads->load + i * loads->micro_batches * loads->layers,
                                 &prediction, error));
        if (loads->predicted)
            loads->predicted(loads->context);
        if (i < from)
            continue;
        seconds[i - from] = prediction.seconds;
        sum += prediction.seconds;
    }
    time->first = seconds[0];
    time->mean = sum / (double)(to - from);
    time->median = mp_median_of(seconds, to - from);
    mp_predictor_memory(predictor, &time->memory, &rank);
    return MP_OK;
}

int mp_place_predict(const struct mp_place_loads *loads, int64_t from, int64_t to,
                     const struct mp_place_map *map, const struct mp_place_map *next,
                     struct mp_place_time *time, struct mp_error *error) {
    struct place_fixed_options options = {map, next};
    struct mp_job_file file = loads->job->file;
    file.system = &place_fixed;
    file.system_options = &options;
    return run(loads, &file, from, from, to, time, error);
}

int mp_place_predict_system(const struct mp_place_loads *loads, int64_t from, int64_t to,
                            struct mp_place_time *time, struct mp_error *error) {
    return run(loads, &loads->job->file, 0, from, to, time, error);
}

/* ---- traffic ---- */

/* Rows of one load: each source's routes to an expert go evenly over its slots. */
static void add_rows(const struct mp_place_map *map, const struct mp_topology *topology, int layer,
                     const struct mp_load *load, const int32_t slots[], double rows[],
                     struct mp_place_traffic *traffic) {
    for (int source = 0; source < load->ranks; source++) {
        const uint32_t *count = load->count + (long)source * load->experts;
        const int32_t *slot = mp_place_slots(map, layer);
        const int node = mp_topology_node(topology, source);
        memset(rows, 0, (size_t)map->ranks * sizeof *rows);
        for (int i = 0; i < map->ranks * map->per_rank; i++)
            if (slot[i] >= 0)
                rows[i / map->per_rank] += (double)count[slot[i]] / slots[slot[i]];
        for (int to = 0; to < map->ranks; to++)
            if (to == source)
                traffic->own += rows[to];
            else
                traffic->bytes[node * traffic->nodes + mp_topology_node(topology, to)] += rows[to];
    }
}

/* Rows of all iterations become bytes of one. */
static void finish(struct mp_place_traffic *traffic, double bytes) {
    traffic->own *= bytes;
    for (int from = 0; from < traffic->nodes; from++)
        for (int to = 0; to < traffic->nodes; to++) {
            double *cell = &traffic->bytes[from * traffic->nodes + to];
            *cell *= bytes;
            *(from == to ? &traffic->inside : &traffic->between) += *cell;
        }
}

int mp_place_traffic(const struct mp_place_loads *loads, int64_t from, int64_t to,
                     const struct mp_place_map *map, struct mp_arena *memory,
                     struct mp_place_traffic *traffic, struct mp_error *error) {
    const struct mp_topology topology = mp_cluster_topology(loads->cluster);
    const struct mp_predict_job *job = loads->job;
    struct mp_costs *costs;
    int32_t *slots;
    double *rows;
    *traffic = (struct mp_place_traffic){.nodes = mp_topology_nodes(&topology)};
    MP_TRY(mp_costs_create(loads->cluster, &job->file.job, &job->options, &costs, error));
    MP_TAKE(memory, traffic->bytes, traffic->nodes * traffic->nodes);
    MP_TAKE(memory, slots, map->experts);
    MP_TAKE(memory, rows, map->ranks);
    for (int layer = 0; layer < loads->layers && !memory->lacking; layer++) {
        mp_place_count_slots(map, layer, slots);
        for (int64_t i = from; i < to; i++)
            add_rows(map, &topology, layer, &loads->learnt[i * loads->layers + layer], slots, rows,
                     traffic);
    }
    if (!memory->lacking)
        finish(traffic, costs->sizes.row / (double)(to - from));
    mp_costs_destroy(costs);
    return mp_arena_check(memory, error);
}
