/* Router traces of Megatron-LM: a line of JSON for every (step, block, layer) of a rank, a file for
 * every rank (its megatron/core/transformer/moe router tracer and tools/moe_routing, 2026). */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/workload/format_json.h"
#include "harness/workload/format_readers.h"
#include "harness/workload/input.h"
#include "reference/base/arena.h"

enum {
    LINE_LIMIT = 4 << 20, /* bytes; JSON as a tree needs some fifty times its text */
    FILES_LIMIT = 1024,
    NUMBER_LIMIT = 65535, /* ranks, layers, experts, experts per token */
    NAME = 32
};

/* A layer of the model: prediction layers behind the decoder have numbers of their own. */
struct place {
    int mtp; /* 0: decoder; else mtp_idx + 1 */
    int layer;
};

/* A file and its line that was read last. */
struct source {
    struct mp_input *input;
    bool ended;
    int64_t line;
    int64_t step;
    struct place place;
    int rank, tokens, top_k;
    int32_t *index; /* [tokens * top_k], of `capacity` */
    size_t capacity;
};

struct megatron {
    const char *path; /* of info's source text; borrowed while opening */
    struct source *source;
    int sources;
    int experts, top_k; /* experts 0: not given; top_k 0 before the first line */
    int largest;        /* index so far */
    char stage[NAME];

    struct place *place;        /* [layers], ascending */
    int *calls;                 /* [ranks][layers] in this step: the micro-batch that comes next */
    struct mp_token_cell *cell; /* [micro-batch][layer][rank]; NULL: tokens are not kept */
    bool keeps_tokens;
    uint32_t *count; /* [micro-batch][layer][rank][expert] of this step */
    struct mp_trace_shape shape;
    int64_t step, previous; /* previous: -1 before the first */
    int blocks, next;
};

static void megatron_destroy(void *self) {
    struct megatron *megatron = self;
    if (!megatron)
        return;
    for (int i = 0; i < megatron->sources; i++) {
        mp_input_destroy(megatron->source[i].input);
        free(megatron->source[i].index);
    }
    free(megatron->source);
    free(megatron->place);
    free(megatron->calls);
    free(megatron->count);
    mp_token_cells_destroy(megatron->cell, (int64_t)megatron->blocks * megatron->shape.ranks);
    free(megatron);
}

static int line_fail(const struct source *source, const char *what, struct mp_error *error) {
    return mp_fail(error, MP_EFORMAT, "%s:%lld: %s", mp_input_path(source->input),
                   (long long)source->line, what);
}

/* ---- a line ---- */

/* "path:line", which the functions of format_json.h take for a path. */
static const char *where(const struct source *source, char text[512]) {
    snprintf(text, 512, "%s:%lld", mp_input_path(source->input), (long long)source->line);
    return text;
}

static int read_number(const struct source *source, const json_t *object, const char *key,
                       int64_t most, int64_t *number, struct mp_error *error) {
    const json_t *value = json_object_get(object, key);
    char what[160];
    if (json_is_integer(value) && json_integer_value(value) >= 0 &&
        json_integer_value(value) <= most) {
        *number = json_integer_value(value);
        return MP_OK;
    }
    snprintf(what, sizeof what, "%s %s; a whole number from 0 to %lld is right", key,
             value ? "is none that can be" : "is missing", (long long)most);
    return line_fail(source, what, error);
}

/* The routes of one call all have the same stage: those of another would count twice. */
static int read_stage(struct megatron *megatron, const struct source *source, const json_t *object,
                      struct mp_error *error) {
    const char *stage = json_string_value(json_object_get(object, "stage"));
    char what[160];
    if (!stage)
        return MP_OK;
    if (!megatron->stage[0])
        snprintf(megatron->stage, sizeof megatron->stage, "%s", stage);
    if (!strncmp(stage, megatron->stage, sizeof megatron->stage - 1))
        return MP_OK;
    snprintf(what, sizeof what,
             "stage '%.32s' after stage '%s': routes of two stages would be counted twice", stage,
             megatron->stage);
    return line_fail(source, what, error);
}

static int read_place(struct source *source, const json_t *object, struct mp_error *error) {
    const char *block = json_string_value(json_object_get(object, "block"));
    int64_t layer, mtp = -1;
    int code = read_number(source, object, "layer", NUMBER_LIMIT, &layer, error);
    if (!code && json_object_get(object, "mtp_idx"))
        code = read_number(source, object, "mtp_idx", NUMBER_LIMIT, &mtp, error);
    if (code)
        return code;
    if (block && strcmp(block, "decoder") != 0 && strcmp(block, "mtp") != 0)
        return line_fail(source, "a block that is neither 'decoder' nor 'mtp'", error);
    if (block && (mtp >= 0) != !strcmp(block, "mtp"))
        return line_fail(source, "mtp_idx belongs to the lines of block 'mtp', and to all of them",
                         error);
    source->place = (struct place){(int)mtp + 1, (int)layer};
    return MP_OK;
}

static int read_index(struct megatron *megatron, struct source *source, const json_t *value,
                      size_t at, struct mp_error *error) {
    const int most = megatron->experts ? megatron->experts - 1 : NUMBER_LIMIT;
    char what[160];
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > most) {
        snprintf(what, sizeof what, "value %zu of top_indices is no expert: 0 to %d are there", at,
                 most);
        return line_fail(source, what, error);
    }
    source->index[at] = (int32_t)json_integer_value(value);
    if (source->index[at] > megatron->largest)
        megatron->largest = source->index[at];
    return MP_OK;
}

/* A list of every token's list, or all of them in one. */
static int read_indices(struct megatron *megatron, struct source *source, const json_t *list,
                        struct mp_error *error) {
    const size_t tokens = (size_t)source->tokens, top_k = (size_t)source->top_k;
    const size_t wanted = tokens * top_k;
    const bool nested = json_is_array(json_array_get(list, 0));
    char what[160];
    if (!json_is_array(list) || json_array_size(list) != (nested ? tokens : wanted)) {
        snprintf(what, sizeof what,
                 "top_indices has %zu values; %zu lists of %zu, or %zu numbers, are right",
                 json_array_size(list), tokens, top_k, wanted);
        return line_fail(source, what, error);
    }
    if (wanted > source->capacity) {
        free(source->index);
        source->capacity = wanted;
        source->index = malloc(wanted * sizeof *source->index);
        if (!source->index)
            return mp_fail(error, MP_ENOMEM, "%s: no memory for %zu indices",
                           mp_input_path(source->input), wanted);
    }
    int code = MP_OK;
    for (size_t i = 0; i < wanted && !code; i++) {
        const json_t *row = nested ? json_array_get(list, i / top_k) : list;
        if (nested && (!json_is_array(row) || json_array_size(row) != top_k)) {
            snprintf(what, sizeof what, "top_indices[%zu] is no list of %zu experts", i / top_k,
                     top_k);
            return line_fail(source, what, error);
        }
        code = read_index(megatron, source, json_array_get(row, nested ? i % top_k : i), i, error);
    }
    return code;
}

static int read_object(struct megatron *megatron, struct source *source, const json_t *object,
                       struct mp_error *error) {
    int64_t rank = 0, tokens = 0, top_k = 0;
    char what[128];
    if (!json_is_object(object))
        return line_fail(source, "not a JSON object", error);
    int code = read_number(source, object, "step", INT64_MAX - 1, &source->step, error);
    if (!code)
        code = read_number(source, object, "rank", NUMBER_LIMIT, &rank, error);
    if (!code)
        code = read_number(source, object, "num_tokens", LINE_LIMIT, &tokens, error);
    if (!code)
        code = read_number(source, object, "topk", NUMBER_LIMIT, &top_k, error);
    if (!code && (top_k == 0 || (megatron->top_k && top_k != megatron->top_k))) {
        snprintf(what, sizeof what, "topk is %lld; %d, as before, is right", (long long)top_k,
                 megatron->top_k ? megatron->top_k : 1);
        code = line_fail(source, what, error);
    }
    if (!code)
        code = read_stage(megatron, source, object, error);
    if (!code)
        code = read_place(source, object, error);
    if (code)
        return code;
    source->rank = (int)rank;
    source->tokens = (int)tokens;
    source->top_k = megatron->top_k = (int)top_k;
    return read_indices(megatron, source, json_object_get(object, "top_indices"), error);
}

/* The next line of a file that is not empty. */
static int read_line(struct megatron *megatron, struct source *source, struct mp_error *error) {
    char *line, place[512];
    json_error_t wrong;
    do {
        int code = mp_input_line(source->input, &line, error);
        if (code)
            return code;
    } while (line && !line[strspn(line, " \t")]);
    source->ended = !line;
    if (!line)
        return MP_OK;
    source->line = mp_input_line_number(source->input);
    const size_t length = strlen(line);
    if (length > LINE_LIMIT)
        return mp_fail(error, MP_ELIMIT, "%s: a line of %zu bytes; at most %d are read",
                       where(source, place), length, LINE_LIMIT);
    json_t *object = json_loadb(line, length, JSON_REJECT_DUPLICATES, &wrong);
    if (!object)
        return mp_fail(error, MP_EFORMAT, "%s:%d: not valid JSON: %s", where(source, place),
                       wrong.column, wrong.text);
    int code = read_object(megatron, source, object, error);
    json_decref(object);
    return code;
}

/* ---- a step ---- */

static int compare_places(const void *one, const void *other) {
    const struct place *a = one, *b = other;
    if (a->mtp != b->mtp)
        return a->mtp < b->mtp ? -1 : 1;
    return (a->layer > b->layer) - (a->layer < b->layer);
}

/* -1: the first step has none there. */
static int find_layer(const struct megatron *megatron, struct place place) {
    const struct place *found = NULL;
    if (megatron->shape.layers > 0)
        found = bsearch(&place, megatron->place, (size_t)megatron->shape.layers, sizeof place,
                        compare_places);
    return found ? (int)(found - megatron->place) : -1;
}

/* Puts a line into the step. */
static int place_line(struct megatron *megatron, const struct source *source,
                      struct mp_error *error) {
    const struct mp_trace_shape *shape = &megatron->shape;
    const int layer = find_layer(megatron, source->place);
    char what[160];
    if (layer < 0 || source->rank >= shape->ranks) {
        snprintf(what, sizeof what, "layer %d of rank %d is not in the first step",
                 source->place.layer, source->rank);
        return line_fail(source, what, error);
    }
    int *calls = &megatron->calls[(long)source->rank * shape->layers + layer];
    if (*calls == shape->micro_batches) {
        snprintf(what, sizeof what,
                 "line %d of step %lld, layer %d, rank %d; its micro-batches are %d in the first "
                 "step",
                 *calls + 1, (long long)source->step, source->place.layer, source->rank,
                 shape->micro_batches);
        return line_fail(source, what, error);
    }
    int64_t block = (int64_t)*calls * shape->layers + layer;
    uint32_t *row = megatron->count + (block * shape->ranks + source->rank) * shape->experts;
    for (int64_t i = 0; i < (int64_t)source->tokens * source->top_k; i++)
        row[source->index[i]]++;
    ++*calls;
    if (!megatron->cell)
        return MP_OK;
    struct mp_token_cell *cell = &megatron->cell[block * shape->ranks + source->rank];
    return mp_token_cell_add(cell, source->top_k, source->tokens, source->index,
                             mp_input_path(source->input), error);
}

static int check_whole(const struct megatron *megatron, struct mp_error *error) {
    const struct mp_trace_shape *shape = &megatron->shape;
    for (long cell = 0; cell < (long)shape->ranks * shape->layers; cell++) {
        const struct source *source = &megatron->source[0];
        const struct place *place = &megatron->place[cell % shape->layers];
        if (megatron->calls[cell] < shape->micro_batches)
            return mp_fail(error, MP_EFORMAT,
                           "%s: step %lld has %d lines of %s layer %d of rank %ld, and %d of "
                           "others in the first step (read to line %lld)",
                           megatron->sources > 1 ? "the files" : mp_input_path(source->input),
                           (long long)megatron->step, megatron->calls[cell],
                           place->mtp ? "mtp" : "decoder", place->layer, cell / shape->layers,
                           shape->micro_batches, (long long)source->line);
    }
    return MP_OK;
}

/* The step that comes next in any of the files; false at the end of all. */
static bool find_step(const struct megatron *megatron, int64_t *step) {
    bool found = false;
    for (int i = 0; i < megatron->sources; i++) {
        const struct source *source = &megatron->source[i];
        if (source->ended || (found && source->step >= *step))
            continue;
        *step = source->step;
        found = true;
    }
    return found;
}

/* Calls `take` with every line of the step that comes next, file by file. */
static int walk_step(struct megatron *megatron,
                     int (*take)(struct megatron *, const struct source *, struct mp_error *),
                     struct mp_error *error) {
    for (int i = 0; i < megatron->sources; i++) {
        struct source *source = &megatron->source[i];
        while (!source->ended && source->step == megatron->step) {
            int code = take(megatron, source, error);
            if (code || (code = read_line(megatron, source, error)))
                return code;
            if (!source->ended && source->step < megatron->step)
                return line_fail(source, "an earlier step than the line before: steps ascend",
                                 error);
        }
    }
    return MP_OK;
}

static int megatron_next(void *self, struct mp_trace_block *block, bool *end,
                         struct mp_error *error) {
    struct megatron *megatron = self;
    const struct mp_trace_shape *shape = &megatron->shape;
    const int64_t loads = (int64_t)shape->ranks * shape->experts;
    if (megatron->next == megatron->blocks) {
        *end = !find_step(megatron, &megatron->step);
        if (*end)
            return MP_OK;
        memset(megatron->count, 0, (size_t)(loads * megatron->blocks) * sizeof *megatron->count);
        memset(megatron->calls, 0,
               (size_t)shape->ranks * (size_t)shape->layers * sizeof *megatron->calls);
        for (int64_t i = 0; megatron->cell && i < (int64_t)megatron->blocks * shape->ranks; i++)
            megatron->cell[i].tokens = 0;
        int code = walk_step(megatron, place_line, error);
        if (code || (code = check_whole(megatron, error)))
            return code;
        megatron->next = 0;
    }
    block->iteration = megatron->step;
    block->micro_batch = megatron->next / shape->layers;
    block->layer = megatron->next % shape->layers;
    const int64_t at = megatron->next++;
    if (megatron->cell) {
        memset(block->load.count, 0, (size_t)loads * sizeof *megatron->count);
        return mp_token_cells_give(megatron->cell + at * shape->ranks, shape->top_k, &block->load,
                                   error);
    }
    memcpy(block->load.count, megatron->count + at * loads,
           (size_t)loads * sizeof *megatron->count);
    return MP_OK;
}

/* ---- opening: the first step gives the shape ---- */

/* Takes a line's place among the layers and its rank. */
static int survey_line(struct megatron *megatron, const struct source *source,
                       struct mp_error *error) {
    struct mp_trace_shape *shape = &megatron->shape;
    shape->ranks = source->rank >= shape->ranks ? source->rank + 1 : shape->ranks;
    megatron->blocks++; /* lines, for now */
    if (find_layer(megatron, source->place) >= 0)
        return MP_OK;
    if (!MP_ROOM(megatron->place, shape->layers))
        return mp_fail(error, MP_ENOMEM, "%s: no memory for its layers",
                       mp_input_path(source->input));
    struct place *more = megatron->place;
    int at = shape->layers++;
    for (; at > 0 && compare_places(&more[at - 1], &source->place) > 0; at--)
        more[at] = more[at - 1];
    more[at] = source->place;
    return MP_OK;
}

static int rewind_all(struct megatron *megatron, struct mp_error *error) {
    int code = MP_OK;
    for (int i = 0; i < megatron->sources && !code; i++) {
        struct source *source = &megatron->source[i];
        code = mp_input_rewind(source->input, error);
        if (!code)
            code = read_line(megatron, source, error);
    }
    return code;
}

/* Lines of the first step over places of it; check_whole finds what is uneven. */
static int survey(struct megatron *megatron, struct mp_error *error) {
    struct mp_trace_shape *shape = &megatron->shape;
    int code = rewind_all(megatron, error);
    if (!code && !find_step(megatron, &megatron->step))
        code = mp_fail(error, MP_EFORMAT, "%s: no line in it", megatron->path);
    if (!code)
        code = walk_step(megatron, survey_line, error);
    if (code)
        return code;
    if (!megatron->experts)
        return mp_fail(error, MP_EINVAL,
                       "%s: lines of a router trace do not say how many experts there are; the "
                       "largest index of the first step is %d; --experts N says it",
                       megatron->path, megatron->largest);
    const int64_t places = (int64_t)shape->ranks * shape->layers;
    shape->micro_batches = (int)((megatron->blocks + places - 1) / places);
    shape->experts = megatron->experts;
    shape->top_k = megatron->top_k;
    if (places > 1000000 + 16 * (int64_t)megatron->blocks)
        return mp_fail(error, MP_EFORMAT,
                       "%s: step %lld has %d lines; %d ranks with %d layers each ask for more",
                       megatron->path, (long long)megatron->step, megatron->blocks, shape->ranks,
                       shape->layers);
    if ((code = mp_format_check_shape(megatron->path, shape, error)))
        return code;
    megatron->blocks = megatron->next = shape->micro_batches * shape->layers;
    megatron->calls = calloc((size_t)places, sizeof *megatron->calls);
    megatron->count = calloc((size_t)places * (size_t)shape->micro_batches,
                             (size_t)shape->experts * sizeof *megatron->count);
    if (megatron->keeps_tokens)
        megatron->cell =
            calloc((size_t)places * (size_t)shape->micro_batches, sizeof *megatron->cell);
    if (!megatron->calls || !megatron->count || (megatron->keeps_tokens && !megatron->cell))
        return mp_fail(error, MP_ENOMEM, "%s: no memory for the loads of a step", megatron->path);
    return rewind_all(megatron, error);
}

static int add_source(struct megatron *megatron, const char *path, struct mp_error *error) {
    if (!MP_ROOM(megatron->source, megatron->sources))
        return mp_fail(error, MP_ENOMEM, "%s: no memory to read it", path);
    struct source *source = &megatron->source[megatron->sources];
    *source = (struct source){0};
    int code = mp_input_open(path, &source->input, error);
    if (!code)
        megatron->sources++;
    return code;
}

static int is_rank_file(const struct dirent *entry) {
    return !strncmp(entry->d_name, "router_trace_rank", 17) && strstr(entry->d_name, ".jsonl");
}

/* All files of a folder: one for every rank. */
static int add_folder(struct megatron *megatron, const char *path, struct mp_error *error) {
    struct dirent **entry;
    int count = scandir(path, &entry, is_rank_file, alphasort);
    if (count < 0)
        return mp_fail(error, MP_EIO, "%s: %s", path, strerror(errno));
    int code = MP_OK;
    if (count == 0 || count > FILES_LIMIT)
        code = mp_fail(error, count ? MP_ELIMIT : MP_ENOTFOUND,
                       "%s: %d files router_trace_rank*.jsonl in this folder; 1 to %d are right",
                       path, count, FILES_LIMIT);
    for (int i = 0; i < count; i++) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, entry[i]->d_name);
        if (!code)
            code = add_source(megatron, file, error);
        free(entry[i]);
    }
    free(entry);
    return code;
}

static int describe(const struct megatron *megatron, struct mp_trace_info *info,
                    struct mp_error *error) {
    const struct place *first = &megatron->place[0];
    int decoder = 0;
    while (decoder < megatron->shape.layers && !megatron->place[decoder].mtp)
        decoder++;
    char notes[256];
    snprintf(notes, sizeof notes,
             "layers are the model's with experts, renumbered: %d of block decoder from %d on, %d "
             "of block mtp; lines of the same step, layer and rank are micro-batches",
             decoder, first->layer, megatron->shape.layers - decoder);
    return mp_format_describe(megatron->path, "megatron", notes, info, error);
}

int mp_format_open_megatron(const char *path, int experts, bool keeps_tokens,
                            struct mp_trace_stream **stream, struct mp_error *error) {
    static const struct mp_trace_stream_operations operations = {megatron_next, megatron_destroy};
    struct megatron *megatron = calloc(1, sizeof *megatron);
    struct mp_trace_info info = {.routes = keeps_tokens};
    struct stat status;
    if (!megatron)
        return mp_fail(error, MP_ENOMEM, "%s: no memory to read it", path);
    megatron->path = path;
    megatron->experts = experts;
    megatron->keeps_tokens = keeps_tokens;
    const bool folder = !stat(path, &status) && S_ISDIR(status.st_mode);
    int code = folder ? add_folder(megatron, path, error) : add_source(megatron, path, error);
    if (!code)
        code = survey(megatron, error);
    if (!code)
        code = describe(megatron, &info, error);
    if (code) {
        megatron_destroy(megatron);
        return code;
    }
    megatron->path = NULL;
    info.shape = megatron->shape;
    return mp_trace_stream_create(&operations, megatron, &info, stream, error);
}
