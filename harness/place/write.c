/* Placements as files that engines read. */
#include <jansson.h>
#include <stdio.h>

#include "harness/place/place.h"
#include "reference/base/whole_file.h"

const char *mp_place_format_name(enum mp_place_format format) {
    static const char *const names[] = {"json", "sglang", "vllm"};
    return names[format];
}

/* The `count` numbers from `slot` on. */
static json_t *pack_slots(const int32_t *slot, int count) {
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(array, json_integer(slot[i]));
    return array;
}

static json_t *pack_sglang(const struct mp_place_map *map, int dense_layers) {
    const int slots = map->ranks * map->per_rank;
    json_t *layers = json_array();
    for (int layer = 0; layer < dense_layers; layer++) {
        json_t *trivial = json_array();
        for (int i = 0; i < slots; i++)
            json_array_append_new(trivial, json_integer(i % map->experts));
        json_array_append_new(layers, trivial);
    }
    for (int layer = 0; layer < map->layers; layer++)
        json_array_append_new(layers, pack_slots(mp_place_slots(map, layer), slots));
    return json_pack("{s:o}", "physical_to_logical_map", layers);
}

static json_t *pack_vllm(const struct mp_place_map *map) {
    json_t *layers = json_array();
    for (int layer = 0; layer < map->layers; layer++) {
        json_t *devices = json_array();
        for (int rank = 0; rank < map->ranks; rank++)
            json_array_append_new(
                devices,
                json_pack("{s:i, s:o}", "device_id", rank, "device_expert",
                          pack_slots(mp_place_slots(map, layer) + (long)rank * map->per_rank,
                                     map->per_rank)));
        json_array_append_new(layers,
                              json_pack("{s:i, s:i, s:o}", "layer_id", layer, "device_count",
                                        map->ranks, "device_list", devices));
    }
    return json_pack("{s:i, s:o}", "moe_layer_count", map->layers, "layer_list", layers);
}

static json_t *pack_json(const struct mp_place_map *map, int dense_layers, const char *made_by) {
    json_t *layers = json_array();
    for (int layer = 0; layer < map->layers; layer++) {
        json_t *ranks = json_array();
        for (int rank = 0; rank < map->ranks; rank++)
            json_array_append_new(
                ranks,
                pack_slots(mp_place_slots(map, layer) + (long)rank * map->per_rank, map->per_rank));
        json_array_append_new(layers, ranks);
    }
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:o}", "made_by", made_by, "experts",
                     map->experts, "ranks", map->ranks, "slots_per_rank", map->per_rank, "layers",
                     map->layers, "dense_layers_in_front", dense_layers, "experts_of_slots",
                     layers);
}

int mp_place_write(const char *path, enum mp_place_format format, const struct mp_place_map *map,
                   int dense_layers, const char *made_by, struct mp_error *error) {
    struct mp_whole_file file;
    if (format == MP_PLACE_SGLANG && dense_layers < 0)
        return mp_fail(error, MP_EINVAL,
                       "%s: SGLang numbers layers without experts along, and these loads have some "
                       "between the others, which a trace does not say: --as json or vllm",
                       path);
    json_t *object = format == MP_PLACE_SGLANG ? pack_sglang(map, dense_layers)
                     : format == MP_PLACE_VLLM ? pack_vllm(map)
                                               : pack_json(map, dense_layers, made_by);
    if (!object)
        return mp_fail(error, MP_ENOMEM, "no memory for %s", path);
    int code = mp_whole_file_open(&file, path, error);
    if (!code) {
        if (json_dumpf(object, file.stream, JSON_COMPACT) || fputc('\n', file.stream) == EOF)
            code = mp_whole_file_fail(&file, error);
        code = mp_whole_file_close(&file, code, error);
    }
    json_decref(object);
    return code;
}
