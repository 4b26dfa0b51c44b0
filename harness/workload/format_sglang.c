/* SGLang's expert distribution recorder, `logical_count`. */
#include <stdio.h>
#include <stdlib.h>

#include "harness/workload/format_json.h"
#include "harness/workload/format_readers.h"

/* Reads row `layer` of the array into count; *routes is its sum. */
static int read_layer(const char *path, const json_t *rows, size_t layer, int experts,
                      uint32_t *count, int64_t *routes, struct mp_error *error) {
    const json_t *row = json_array_get(rows, layer);
    char name[48];
    snprintf(name, sizeof name, "logical_count[%zu]", layer);
    MP_TRY(mp_json_array(path, row, name, (size_t)experts, error));
    *routes = 0;
    for (int i = 0; i < experts; i++) {
        int64_t number;
        MP_TRY(mp_json_whole(path, json_array_get(row, (size_t)i), "logical_count", layer,
                             (size_t)i, UINT32_MAX, &number, error));
        count[i] = (uint32_t)number;
        *routes += number;
    }
    return MP_OK;
}

static int read_loads(const char *path, const json_t *object, struct mp_held *held,
                      struct mp_trace_info *info, char notes[MP_JSON_NOTES],
                      struct mp_error *error) {
    int *dense = &info->dense_layers;
    const json_t *rows = json_object_get(object, "logical_count");
    if (!rows && json_object_get(object, "snapshots"))
        return mp_fail(error, MP_EFORMAT,
                       "%s: no logical_count but snapshots, as vLLM dumps them: moeperf import "
                       "--as vllm-eplb reads those",
                       path);
    MP_TRY(mp_json_array(path, rows, "logical_count", 0, error));
    MP_TRY(mp_json_array(path, json_array_get(rows, 0), "logical_count[0]", 0, error));
    size_t layers = json_array_size(rows);
    size_t experts = json_array_size(json_array_get(rows, 0));
    held->shape = (struct mp_trace_shape){
        .ranks = 1, .experts = (int)experts, .layers = (int)layers, .micro_batches = 1};
    MP_TRY(mp_format_check_shape(path, &held->shape, error));
    MP_TRY(mp_held_take(held, 1, error));
    held->shape.layers = 0;
    *dense = 0;
    for (size_t layer = 0; layer < layers; layer++) {
        int64_t routes;
        MP_TRY(read_layer(path, rows, layer, (int)experts,
                          held->count + (size_t)held->shape.layers * experts, &routes, error));
        if (routes > 0)
            held->shape.layers++;
        else if (*dense == (int)layer)
            ++*dense; /* all layers so far */
        else
            *dense = -1;
    }
    if (held->shape.layers == 0)
        return mp_fail(error, MP_EFORMAT, "%s: logical_count is zero in every layer", path);
    info->of_run = true;
    snprintf(notes, MP_JSON_NOTES,
             "sum over all iterations and sources; %d layers without routes left out%s, the others "
             "numbered from 0",
             (int)layers - held->shape.layers, *dense > 0 ? " (the first ones: dense)" : "");
    return MP_OK;
}

int mp_format_open_sglang(const struct mp_format *format, const char *path, int experts,
                          struct mp_trace_stream **stream, struct mp_error *error) {
    (void)experts;
    return mp_json_open(path, format->name, read_loads, stream, error);
}
