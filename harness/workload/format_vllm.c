/* vLLM's EPLB dump: loads by physical slot, with the map from slots to logical experts. */
#include <stdio.h>
#include <stdlib.h>

#include "harness/workload/format_json.h"
#include "harness/workload/format_readers.h"

static int read_number(const char *path, const json_t *object, const char *key, int64_t most,
                       int64_t *number, struct mp_error *error) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > most)
        return mp_fail(error, MP_EFORMAT, "%s: %s is %s; a whole number from 0 to %lld is right",
                       path, key, value ? "something else" : "missing", (long long)most);
    *number = json_integer_value(value);
    return MP_OK;
}

/* Adds the slots of a layer to its experts. */
static int read_layer(const char *path, const char *name, const json_t *slots, const json_t *map,
                      size_t layer, int experts, uint32_t *count, struct mp_error *error) {
    char load_name[96];
    char map_name[96];
    snprintf(load_name, sizeof load_name, "%s.latest_expert_load", name);
    snprintf(map_name, sizeof map_name, "%s.physical_to_logical_map", name);
    MP_TRY(mp_json_array(path, slots, load_name, 0, error));
    MP_TRY(mp_json_array(path, map, map_name, json_array_size(slots), error));
    for (size_t i = 0; i < json_array_size(slots); i++) {
        int64_t load, expert;
        MP_TRY(mp_json_whole(path, json_array_get(slots, i), load_name, layer, i, UINT32_MAX, &load,
                             error));
        MP_TRY(mp_json_whole(path, json_array_get(map, i), map_name, layer, i, experts - 1, &expert,
                             error));
        if (load > UINT32_MAX - (int64_t)count[expert])
            return mp_fail(error, MP_EFORMAT, "%s: %s[%zu]: expert %lld has more than %u routes",
                           path, load_name, layer, (long long)expert, UINT32_MAX);
        count[expert] += (uint32_t)load;
    }
    return MP_OK;
}

static int read_snapshot(const char *path, const json_t *snapshot, size_t index,
                         struct mp_held *held, struct mp_error *error) {
    char name[48];
    snprintf(name, sizeof name, "snapshots[%zu]", index);
    int64_t *step = held->iteration + index;
    int code = read_number(path, snapshot, "step", INT64_MAX, step, error);
    if (code)
        return mp_error_prefix(error, "%s", name);
    if (index && *step <= step[-1])
        return mp_fail(error, MP_EFORMAT, "%s: %s: step %lld after step %lld; steps have to ascend",
                       path, name, (long long)*step, (long long)step[-1]);
    const json_t *load = json_object_get(snapshot, "latest_expert_load");
    const json_t *map = json_object_get(snapshot, "physical_to_logical_map");
    if (!load)
        return mp_fail(error, MP_EFORMAT,
                       "%s: %s has no latest_expert_load; windows overlap and can't stand for it",
                       path, name);
    size_t layers = (size_t)held->shape.layers;
    code = mp_json_array(path, load, "latest_expert_load", layers, error);
    if (!code)
        code = mp_json_array(path, map, "physical_to_logical_map", layers, error);
    if (code)
        return mp_error_prefix(error, "%s", name);
    for (size_t layer = 0; layer < layers; layer++)
        MP_TRY(read_layer(path, name, json_array_get(load, layer), json_array_get(map, layer),
                          layer, held->shape.experts,
                          held->count + (index * layers + layer) * (size_t)held->shape.experts,
                          error));
    return MP_OK;
}

static int read_loads(const char *path, const json_t *object, struct mp_held *held,
                      struct mp_trace_info *info, char notes[MP_JSON_NOTES],
                      struct mp_error *error) {
    const json_t *snapshots = json_object_get(object, "snapshots");
    int64_t layers = 0, experts = 0;
    (void)info;
    snprintf(notes, MP_JSON_NOTES, "latest loads of each snapshot, sum over all sources");
    MP_TRY(read_number(path, object, "num_moe_layers", 65536, &layers, error));
    MP_TRY(read_number(path, object, "num_logical_experts", 65536, &experts, error));
    MP_TRY(mp_json_array(path, snapshots, "snapshots", 0, error));
    held->shape = (struct mp_trace_shape){
        .ranks = 1, .experts = (int)experts, .layers = (int)layers, .micro_batches = 1};
    MP_TRY(mp_format_check_shape(path, &held->shape, error));
    /* The first snapshot has to have its layers before memory is asked for all of them. */
    size_t count = json_array_size(snapshots);
    const json_t *load = json_object_get(json_array_get(snapshots, 0), "latest_expert_load");
    if (load)
        MP_TRY(mp_json_array(path, load, "snapshots[0].latest_expert_load", (size_t)layers, error));
    if (count > ((size_t)1 << 28) / (size_t)(layers * experts))
        return mp_fail(error, MP_ELIMIT, "%s: %zu snapshots of %lld layers are too many", path,
                       count, (long long)layers);
    MP_TRY(mp_held_take(held, (int64_t)count, error));
    for (size_t i = 0; i < count; i++)
        MP_TRY(read_snapshot(path, json_array_get(snapshots, i), i, held, error));
    return MP_OK;
}

int mp_format_open_vllm(const struct mp_format *format, const char *path, int experts,
                        struct mp_trace_stream **stream, struct mp_error *error) {
    (void)experts;
    return mp_json_open(path, format->name, read_loads, stream, error);
}
