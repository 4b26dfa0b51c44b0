/* Router traces of Megatron-LM: a line of JSON for every (step, block, layer) of a rank, a file for
 * every rank (its megatron/core/transformer/moe router tracer and tools/moe_routing, 2026). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/format_json.h"
#include "harness/workload/format_readers.h"
#include "harness/workload/format_rows.h"

enum {
    LINE_LIMIT = 4 << 20, /* bytes; JSON as a tree needs some fifty times its text */
    NAME = 32
};

/* A layer of the model: prediction layers behind the decoder have numbers of their own. */
struct place {
    int mtp; /* 0: decoder; else mtp_idx + 1 */
    int layer;
};

struct megatron {
    struct mp_rows rows; /* first */
    char stage[NAME];
    struct place *place; /* [layers], ascending; owned */
};

/* ---- a line ---- */

static const struct megatron *of(const struct mp_rows *rows) {
    return (const struct megatron *)rows;
}

static int read_number(const struct mp_row_source *source, const json_t *object, const char *key,
                       int64_t most, int64_t *number, struct mp_error *error) {
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value) && json_integer_value(value) >= 0 &&
        json_integer_value(value) <= most) {
        *number = json_integer_value(value);
        return MP_OK;
    }
    return mp_row_fail(source, error, "%s %s; a whole number from 0 to %lld is right", key,
                       value ? "is none that can be" : "is missing", (long long)most);
}

/* The routes of one call all have the same stage: those of another would count twice. */
static int read_stage(struct megatron *megatron, const struct mp_row_source *source,
                      const json_t *object, struct mp_error *error) {
    const char *stage = json_string_value(json_object_get(object, "stage"));
    if (!stage)
        return MP_OK;
    if (!megatron->stage[0])
        snprintf(megatron->stage, sizeof megatron->stage, "%s", stage);
    if (!strncmp(stage, megatron->stage, sizeof megatron->stage - 1))
        return MP_OK;
    return mp_row_fail(
        source, error,
        "stage '%.32s' after stage '%s': routes of two stages would be counted twice", stage,
        megatron->stage);
}

static int read_place(struct mp_rows *rows, struct mp_row_source *source, const json_t *object,
                      struct mp_error *error) {
    const char *block = json_string_value(json_object_get(object, "block"));
    struct place *place = source->own;
    int64_t layer = 0, mtp = -1;
    MP_TRY(read_number(source, object, "layer", MP_ROW_NUMBER_LIMIT, &layer, error));
    if (json_object_get(object, "mtp_idx"))
        MP_TRY(read_number(source, object, "mtp_idx", MP_ROW_NUMBER_LIMIT, &mtp, error));
    if (!place)
        source->own = MP_TAKE(&rows->memory, place, 1);
    MP_TRY(mp_arena_check(&rows->memory, error));
    if (block && strcmp(block, "decoder") != 0 && strcmp(block, "mtp") != 0)
        return mp_row_fail(source, error, "a block that is neither 'decoder' nor 'mtp'");
    if (block && (mtp >= 0) != !strcmp(block, "mtp"))
        return mp_row_fail(source, error,
                           "mtp_idx belongs to the lines of block 'mtp', and to all of them");
    *place = (struct place){(int)mtp + 1, (int)layer};
    return MP_OK;
}

static int read_index(struct mp_rows *rows, struct mp_row_source *source, const json_t *value,
                      size_t at, struct mp_error *error) {
    const int most = rows->shape.experts ? rows->shape.experts - 1 : MP_ROW_NUMBER_LIMIT;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > most)
        return mp_row_fail(source, error,
                           "value %zu of top_indices is no expert: 0 to %d are there", at, most);
    source->choice[at] = (int32_t)json_integer_value(value);
    if (source->choice[at] > rows->largest)
        rows->largest = source->choice[at];
    return MP_OK;
}

/* A list of every token's list, or all of them in one. */
static int read_indices(struct mp_rows *rows, struct mp_row_source *source, const json_t *list,
                        struct mp_error *error) {
    const size_t tokens = (size_t)source->tokens, top_k = (size_t)rows->shape.top_k;
    const size_t wanted = tokens * top_k;
    const bool nested = json_is_array(json_array_get(list, 0));
    if (!json_is_array(list) || json_array_size(list) != (nested ? tokens : wanted))
        return mp_row_fail(
            source, error,
            "top_indices has %zu values; %zu lists of %zu, or %zu numbers, are right",
            json_array_size(list), tokens, top_k, wanted);
    MP_TRY(mp_row_choices(source, wanted, error));
    for (size_t i = 0; i < wanted; i++) {
        const json_t *row = nested ? json_array_get(list, i / top_k) : list;
        if (nested && (!json_is_array(row) || json_array_size(row) != top_k))
            return mp_row_fail(source, error, "top_indices[%zu] is no list of %zu experts",
                               i / top_k, top_k);
        MP_TRY(read_index(rows, source, json_array_get(row, nested ? i % top_k : i), i, error));
    }
    return MP_OK;
}

static int read_object(struct mp_rows *rows, struct mp_row_source *source, const json_t *object,
                       struct mp_error *error) {
    int64_t rank = 0, tokens = 0, top_k = 0;
    const int known = rows->shape.top_k;
    if (!json_is_object(object))
        return mp_row_fail(source, error, "not a JSON object");
    MP_TRY(read_number(source, object, "step", INT64_MAX - 1, &source->iteration, error));
    MP_TRY(read_number(source, object, "rank", MP_ROW_NUMBER_LIMIT, &rank, error));
    MP_TRY(read_number(source, object, "num_tokens", LINE_LIMIT, &tokens, error));
    MP_TRY(read_number(source, object, "topk", MP_ROW_NUMBER_LIMIT, &top_k, error));
    if (top_k == 0 || (known && top_k != known))
        return mp_row_fail(source, error, "topk is %lld; %d, as before, is right", (long long)top_k,
                           known ? known : 1);
    MP_TRY(read_stage((struct megatron *)rows, source, object, error));
    MP_TRY(read_place(rows, source, object, error));
    source->key[MP_ROW_RANK] = (int)rank;
    source->tokens = (int)tokens;
    rows->shape.top_k = (int)top_k;
    return read_indices(rows, source, json_object_get(object, "top_indices"), error);
}

static int read_line(struct mp_rows *rows, struct mp_row_source *source, char *line,
                     struct mp_error *error) {
    json_error_t wrong;
    const size_t length = strlen(line);
    if (length > LINE_LIMIT)
        return mp_fail(error, MP_ELIMIT, "%s:%lld: a line of %zu bytes; at most %d are read",
                       mp_input_path(source->input), (long long)mp_input_line_number(source->input),
                       length, LINE_LIMIT);
    json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES, &wrong);
    if (!object)
        return mp_row_fail(source, error, "column %d: not valid JSON: %s", wrong.column,
                           wrong.text);
    int code = read_object(rows, source, object, error);
    json_decref(object);
    return code;
}

/* ---- layers ---- */

static int compare_places(const void *one, const void *other) {
    const struct place *a = one, *b = other;
    return MP_ORDER(a->mtp, b->mtp) ?: MP_ORDER(a->layer, b->layer);
}

/* NULL: the first step has none there. */
static struct place *find_layer(const struct mp_rows *rows, const struct place *place) {
    return rows->shape.layers ? bsearch(place, of(rows)->place, (size_t)rows->shape.layers,
                                        sizeof *place, compare_places)
                              : NULL;
}

static int survey(struct mp_rows *rows, const struct mp_row_source *source,
                  struct mp_error *error) {
    struct megatron *megatron = (struct megatron *)rows;
    const struct place *own = source->own;
    if (find_layer(rows, own))
        return MP_OK;
    MP_TRY(MP_GROW(megatron->place, rows->shape.layers, error));
    struct place *all = megatron->place;
    int at = rows->shape.layers++;
    for (; at > 0 && compare_places(&all[at - 1], own) > 0; at--)
        all[at] = all[at - 1];
    all[at] = *own;
    return MP_OK;
}

static int locate(struct mp_rows *rows, struct mp_row_source *source, struct mp_error *error) {
    const struct place *own = source->own, *found = find_layer(rows, own);
    if (!found)
        return mp_row_fail(source, error, "layer %d is not in the first step", own->layer);
    source->key[MP_ROW_LAYER] = (int)(found - of(rows)->place);
    return MP_OK;
}

static void name_layer(const struct mp_rows *rows, int layer, char *text, size_t size) {
    const struct place *place = &of(rows)->place[layer];
    snprintf(text, size, "%s layer %d", place->mtp ? "mtp" : "decoder", place->layer);
}

static void note(const struct mp_rows *rows, char *text, size_t size) {
    const struct place *place = of(rows)->place;
    const int decoder = MP_PLACE(i, rows->shape.layers, place[i].mtp);
    snprintf(text, size,
             "layers are the model's with experts, renumbered: %d of block decoder from %d on, %d "
             "of block mtp; lines of the same step, layer and rank are micro-batches",
             decoder, place[0].layer, rows->shape.layers - decoder);
}

static void destroy(struct mp_rows *rows) {
    free(of(rows)->place);
}

int mp_format_open_megatron(const struct mp_format *format, const char *path, int experts,
                            struct mp_trace_stream **stream, struct mp_error *error) {
    static const struct mp_rows_reader reader = {.files = "router_trace_rank*.jsonl*",
                                                 .line = read_line,
                                                 .survey = survey,
                                                 .locate = locate,
                                                 .name_layer = name_layer,
                                                 .note = note,
                                                 .destroy = destroy};
    struct megatron *megatron = calloc(1, sizeof *megatron);
    if (megatron)
        megatron->rows = (struct mp_rows){.reader = &reader,
                                          .in_turn = true,
                                          .wants_experts = true,
                                          .keeps_tokens = format->variant,
                                          .shape = {.experts = experts}};
    return mp_rows_open(megatron ? &megatron->rows : NULL, path, "megatron", stream, error);
}
