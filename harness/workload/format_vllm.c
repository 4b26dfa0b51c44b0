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
    int code = mp_json_array(path, slots, load_name, 0, error);
    if (!code)
        code = mp_json_array(path, map, map_name, json_array_size(slots), error);
    if (code)
        return code;
    for (size_t i = 0; i < json_array_size(slots); i++) {
        int64_t load = 0;
        int64_t expert = 0;
        if ((code = mp_json_whole(path, json_array_get(slots, i), load_name, layer, i, UINT32_MAX,
                                  &load, error)) ||
            (code = mp_json_whole(path, json_array_get(map, i), map_name, layer, i, experts - 1,
                                  &expert, error)))
            return code;
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
    for (size_t layer = 0; layer < layers && !code; layer++)
        code =
            read_layer(path, name, json_array_get(load, layer), json_array_get(map, layer), layer,
                       held->shape.experts,
                       held->count + (index * layers + layer) * (size_t)held->shape.experts, error);
    return code;
}

static int read_loads(const char *path, const json_t *object, struct mp_held *held,
                      struct mp_trace_info *info, char notes[MP_JSON_NOTES],
                      struct mp_error *error) {
    const json_t *snapshots = json_object_get(object, "snapshots");
    int64_t layers = 0;
    int64_t experts = 0;
    int code;
    (void)info;
    snprintf(notes, MP_JSON_NOTES, "latest loads of each snapshot, sum over all sources");
    if ((code = read_number(path, object, "num_moe_layers", 65536, &layers, error)) ||
        (code = read_number(path, object, "num_logical_experts", 65536, &experts, error)) ||
        (code = mp_json_array(path, snapshots, "snapshots", 0, error)))
        return code;
    held->shape = (struct mp_trace_shape){
        .ranks = 1, .experts = (int)experts, .layers = (int)layers, .micro_batches = 1};
    if ((code = mp_format_check_shape(path, &held->shape, error)))
        return code;
    /* The first snapshot has to have its layers before memory is asked for all of them. */
    size_t count = json_array_size(snapshots);
    const json_t *load = json_object_get(json_array_get(snapshots, 0), "latest_expert_load");
    if (load && (code = mp_json_array(path, load, "snapshots[0].latest_expert_load", (size_t)layers,
                                      error)))
        return code;
    if (count > ((size_t)1 << 28) / (size_t)(layers * experts))
        return mp_fail(error, MP_ELIMIT, "%s: %zu snapshots of %lld layers are too many", path,
                       count, (long long)layers);
    held->iterations = (int64_t)count;
    held->iteration = calloc(count, sizeof *held->iteration);
    held->count = calloc(count * (size_t)layers, (size_t)experts * sizeof *held->count);
    if (!held->iteration || !held->count)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for its loads", path);
    for (size_t i = 0; i < count && !code; i++)
        code = read_snapshot(path, json_array_get(snapshots, i), i, held, error);
    return code;
}

int mp_format_open_vllm(const struct mp_format *format, const char *path, int experts,
                        struct mp_trace_stream **stream, struct mp_error *error) {
    (void)experts;
    return mp_json_open(path, format->name, read_loads, stream, error);
}
