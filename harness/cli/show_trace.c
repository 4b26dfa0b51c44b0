/* What a trace holds, as tables and as a page of heat maps. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/trace_file.h"
#include "reference/base/arena.h"
#include "results/report/page.h"
#include "results/report/query.h"
#include "results/report/table.h"

bool cli_is_trace(const char *name) {
    const char *ending = strrchr(name, '.');
    return ending && !strcmp(ending, ".mptrace");
}

/* Layers that are drawn, rows and columns of a map of experts, and a map's iterations, at most (the
 * last as the report has of runs). */
enum { MAPS = 4, MAP_EXPERTS = 64, ITERATION_BINS = 40 };

/* ---- numbers of layers ---- */

/* Both begin with the layer's number; -1: of all. */
struct load_row {
    int layer;
    struct mp_trace_summary of;
};
struct token_row {
    int layer;
    struct mp_token_summary of;
};

static void show_layer(const void *row, char text[TABLE_CELL]) {
    const int *layer = row;
    snprintf(text, TABLE_CELL, *layer < 0 ? "all" : "%d", *layer);
}

/* For people and for programs. */
#define LAYER_COLUMNS                                                                              \
    {"layer", TABLE_LEFT, .show = show_layer}, {                                                   \
        NULL, TABLE_COUNT, NULL, "layer", .at = 0                                                  \
    }

#define LOADS(member) offsetof(struct load_row, of.member)
static const struct table_column load_columns[] = {
    LAYER_COLUMNS,
    {"fullest\nexpert", TABLE_NUMBER, NULL, "expert_max_over_mean",
     LOADS(median[MP_EXPERT_MAX_OVER_MEAN]), .decimals = 2},
    {"fullest\nrank", TABLE_NUMBER, NULL, "rank_max_over_mean",
     LOADS(median[MP_RANK_MAX_OVER_MEAN]), .decimals = 2},
    {"effective\nexperts", TABLE_NUMBER, NULL, "effective_experts",
     LOADS(median[MP_EFFECTIVE_EXPERTS]), .decimals = 1},
    {"dead", TABLE_NUMBER, "%", "dead_fraction", LOADS(median[MP_DEAD_FRACTION]), .decimals = 1},
    {"correlation\n1 later", TABLE_NUMBER, NULL, "correlation_1", LOADS(correlation[0]),
     .decimals = 3},
    {"corr.\n10 later", TABLE_NUMBER, NULL, "correlation_10", LOADS(correlation[1]), .decimals = 3},
    {"corr.\n100 later", TABLE_NUMBER, NULL, "correlation_100", LOADS(correlation[2]),
     .decimals = 3},
    {NULL, TABLE_LARGE, NULL, "routes", .at = LOADS(routes)},
    {NULL, TABLE_NUMBER, NULL, "worst_expert_max_over_mean", .at = LOADS(worst)},
    {NULL, TABLE_LARGE, NULL, "worst_iteration", .at = LOADS(worst_at.iteration)},
};
static const char about_loads[] =
    "Medians over blocks; fullest expert, and rank, over the mean, with the experts where "
    "plain expert parallelism has them; effective experts: as many equally loaded ones would "
    "be as uneven; dead: without routes; correlation: of a layer's routes by expert with those "
    "so many iterations later.";

#define TOKENS(member) offsetof(struct token_row, of.member)
static const struct table_column token_columns[] = {
    LAYER_COLUMNS,
    {"next\ntold", TABLE_NUMBER, "%", "next_most_frequent", TOKENS(most), .decimals = 1},
    {"without\npresent", TABLE_NUMBER, "%", "next_most_frequent_independent",
     TOKENS(most_independent), .decimals = 1},
    {"present\ntells", TABLE_NUMBER, "bits", "next_information_bits", TOKENS(information),
     .decimals = 3},
    {"of", TABLE_NUMBER, "bits", "next_entropy_bits", TOKENS(entropy), .decimals = 3},
    {"ranks per\ntoken", TABLE_NUMBER, NULL, "ranks_per_token", TOKENS(ranks), .decimals = 3},
    {"by counts\nalone", TABLE_NUMBER, NULL, "ranks_per_token_independent",
     TOKENS(ranks_independent), .decimals = 3},
};
static const char about_tokens[] =
    "Of tokens, from the layer before: how many of their next experts are the most frequent "
    "one after their present expert, and would be if all were held for the layer's most "
    "frequent one; how many bits their present expert tells of the next, of how many. And on "
    "how many ranks a token's experts are, where plain expert parallelism has them, beside "
    "what counts alone let one think: experts drawn with them as probabilities.";

/* A trace that was read. */
struct shown {
    const char *path;
    const struct mp_trace_info *info;
    const struct mp_trace_statistics *statistics;
    const struct mp_token_statistics *tokens; /* NULL: the trace has none */
    struct load_row *load;                    /* [1 + layers], that of all in front */
    struct token_row *token;                  /* [layers] */
    struct table loads, by_token;             /* of these; no rows of tokens there are none of */
    struct mp_arena *arena;                   /* of these, and of what maps gather */
};

static void print_layers(const struct table *table, const char *about) {
    putchar('\n');
    table_print(table, stdout);
    putchar('\n');
    table_paragraph(stdout, "%s", about);
}

/* ---- maps ---- */

/* Of these, the layer with the largest value, that with the next, the median and the least. */
static int choose_layers(const double value[], int layers, int chosen[MAPS]) {
    const int wanted[MAPS] = {0, 1, layers / 2, layers - 1};
    int count = 0;
    for (int w = 0; w < MAPS; w++) {
        if (w > 0 && wanted[w] <= wanted[w - 1])
            continue;
        for (int l = 0; l < layers; l++) {
            int place = 0;
            for (int k = 0; k < layers; k++)
                place += value[k] > value[l] || (!(value[k] < value[l]) && k < l);
            if (place == wanted[w])
                chosen[count++] = l;
        }
    }
    return count;
}

/* A table of Vega's with three columns. */
static json_t *map_data(const char *first, const char *second, const char *third) {
    return json_pack("{s:[s, s, s], s:[]}", "columns", first, second, third, "rows");
}

/* Consumes the row.  MP_ENOMEM. */
static int map_add(json_t *data, json_t *row, struct mp_error *error) {
    return json_array_append_new(json_object_get(data, "rows"), row)
               ? mp_fail(error, MP_ENOMEM, "no memory for the page")
               : MP_OK;
}

/* To hundredths: a page has many of them. */
static double map_number(double value) {
    return round(100 * value) / 100;
}

/* ---- from layer to layer ---- */

/* Transitions of groups of `width` experts. */
struct map {
    int groups, width;
    double all, *cell, *from, *to; /* [groups][groups], [groups] each */
};

static void gather_transitions(const uint64_t next[], int experts, struct map *map) {
    const size_t groups = (size_t)map->groups;
    memset(map->cell, 0, groups * (groups + 2) * sizeof *map->cell);
    map->all = 0;
    for (int i = 0; i < experts; i++)
        for (int j = 0; j < experts; j++) {
            double count = (double)next[(size_t)i * (size_t)experts + (size_t)j];
            map->cell[(size_t)(i / map->width) * groups + (size_t)(j / map->width)] += count;
            map->from[i / map->width] += count;
            map->to[j / map->width] += count;
            map->all += count;
        }
}

static json_t *pack_map(const struct map *map, int layer, double bits, struct mp_error *error) {
    char label[96], before[48], after[48];
    json_t *data = map_data("next", "expert", "value");
    for (int i = 0; i < map->groups; i++)
        for (int j = 0; j < map->groups; j++) {
            double chance = map->from[i] * map->to[j] / map->all;
            if (chance > 0 &&
                map_add(data,
                        json_pack("[i, i, f]", j * map->width, i * map->width,
                                  map_number(map->cell[i * map->groups + j] / chance)),
                        error))
                break;
        }
    snprintf(label, sizeof label, "%d to %d (tells %.3f bits)", layer - 1, layer, bits);
    snprintf(before, sizeof before, "expert of layer %d", layer - 1);
    snprintf(after, sizeof after, "expert of layer %d", layer);
    return page_choice(label, data,
                       json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "across", "next", "rowTitle",
                                 before, "columnTitle", after, "columnName", after, "measure",
                                 "transitions / by chance", "against", "x as many as by chance"));
}

/* Heat maps, from the experts of a layer to those of the next one: how many times as many
 * transitions there are as if neither layer's expert told anything of the other.  Of at most four
 * layers: those whose experts tell most, next most, median and least.  Of many experts a cell is
 * of several neighbours.  MP_ENOMEM. */
static int write_transitions(struct page *page, const struct shown *shown, struct mp_error *error) {
    const struct mp_trace_shape *shape = &shown->info->shape;
    struct map map = {.width = (shape->experts + MAP_EXPERTS - 1) / MAP_EXPERTS};
    map.groups = (shape->experts + map.width - 1) / map.width;
    const size_t groups = (size_t)map.groups;
    double *bits; /* of the layers behind the first */
    int chosen[MAPS];
    MP_TAKE(shown->arena, bits, shape->layers);
    MP_TAKE(shown->arena, map.cell, groups * (groups + 2));
    MP_TRY(mp_arena_check(shown->arena, error));
    map.from = map.cell + groups * groups;
    map.to = map.from + groups;
    for (int l = 1; l < shape->layers; l++) {
        double information = shown->token[l].of.information;
        bits[l - 1] = isnan(information) ? -1 : information;
    }
    json_t *choices = json_array();
    int count = choose_layers(bits, shape->layers - 1, chosen);
    for (int i = 0; i < count; i++) {
        int layer = chosen[i] + 1;
        gather_transitions(mp_token_statistics_transitions(shown->tokens, layer), shape->experts,
                           &map);
        if (map.all > 0)
            json_array_append_new(choices, pack_map(&map, layer, bits[chosen[i]], error));
    }
    return page_figure(page, "experts", "From layer to layer",
                       "Tokens that go from an expert of a layer to one of the next: how "
                       "many times as many as if neither told anything of the other; blue "
                       "are fewer, orange more.  Of many experts a cell is of neighbours.",
                       "Layers", choices, error);
}

/* ---- JSON ---- */

static int print_json(const struct shown *shown, struct mp_error *error) {
    const struct mp_trace_info *info = shown->info;
    const struct mp_trace_shape *shape = &info->shape;
    const struct mp_trace_summary *summary = &shown->load->of;
    json_t *layers = table_json(&shown->loads), *all = json_incref(json_array_get(layers, 0));
    json_object_set_new(all, "layer", json_null());
    json_array_remove(layers, 0);
    return cli_print_json(
        json_pack("{s:s, s:s, s:s?, s:s?, s:b, s:{s:i, s:i, s:i, s:i, s:i}, s:I, s:I, s:I, s:I, "
                  "s:I, s:o, s:o, s:o*}",
                  "kind", "trace", "path", shown->path, "source", info->source, "notes",
                  info->notes, "ragged", info->ragged, "shape", "ranks", shape->ranks, "experts",
                  shape->experts, "layers", shape->layers, "micro_batches", shape->micro_batches,
                  "top_k", shape->top_k, "iterations", (json_int_t)summary->iterations,
                  "first_iteration", (json_int_t)summary->first, "last_iteration",
                  (json_int_t)summary->last, "blocks", (json_int_t)summary->blocks,
                  "blocks_without_routes", (json_int_t)summary->empty, "all", all, "by_layer",
                  layers, "tokens_by_layer", shown->tokens ? table_json(&shown->by_token) : NULL),
        error);
}

/* ---- the page ---- */

/* Of the k-th iteration of the trace; bins are as even as they can be. */
static int bin_of(const struct shown *shown, int64_t k) {
    const int64_t all = shown->load->of.iterations,
                  bins = all < ITERATION_BINS ? all : ITERATION_BINS;
    return (int)(k * bins / all);
}

/* Means of a bin. */
struct cell {
    int64_t iteration; /* its first */
    double sum[2];
    int64_t count[2];
};

static double mean_of(const struct cell *cell, int measure) {
    return cell->count[measure] ? cell->sum[measure] / (double)cell->count[measure] : NAN;
}

/* How uneven a layer was over time: into cells[ITERATION_BINS]. */
static int64_t fill_layer(const struct shown *shown, int layer, struct cell cells[]) {
    const struct mp_trace_shape *shape = &shown->info->shape;
    const int64_t blocks = mp_trace_statistics_blocks(shown->statistics);
    const int64_t stride = (int64_t)shape->layers * shape->micro_batches;
    int last = -1;
    for (int64_t b = layer; b < blocks; b += shape->layers) {
        struct mp_trace_place place;
        const double *value = mp_trace_statistics_block(shown->statistics, b, &place);
        int bin = bin_of(shown, b / stride);
        if (bin != last)
            cells[bin] = (struct cell){.iteration = place.iteration};
        last = bin;
        for (int m = 0; m < 2; m++) {
            double one = value[m ? MP_RANK_MAX_OVER_MEAN : MP_EXPERT_MAX_OVER_MEAN];
            cells[bin].sum[m] += isnan(one) ? 0 : one;
            cells[bin].count[m] += !isnan(one);
        }
    }
    return last + 1;
}

static int write_imbalance(struct page *page, const struct shown *shown, struct mp_error *error) {
    struct cell cells[ITERATION_BINS] = {{0}};
    json_t *data = json_pack("{s:[s, s, s, s], s:[]}", "columns", "iteration", "layer", "value",
                             "ranks", "rows");
    int code = MP_OK;
    for (int l = 0; l < shown->info->shape.layers && !code; l++) {
        int64_t bins = fill_layer(shown, l, cells);
        for (int64_t b = 0; b < bins && !code; b++) {
            double value = mean_of(&cells[b], 0), ranks = mean_of(&cells[b], 1);
            if (isnan(value))
                continue;
            code = map_add(data,
                           json_pack("[I, i, f, o]", (json_int_t)cells[b].iteration, l,
                                     map_number(value), number_value(map_number(ranks))),
                           error);
        }
    }
    if (code) {
        json_decref(data);
        return code;
    }
    return page_figure_of(page, "imbalance", "How uneven loads are",
                          "Routes of the fullest expert over the mean (1: even), by layer and "
                          "iteration; of many iterations a cell is the mean.",
                          data, error);
}

/* Routes of chosen layers' experts, gathered in bins. */
struct loads {
    int layers, layer[MAPS], rows, width; /* of `width` experts each */
    int64_t iteration[ITERATION_BINS];
    int64_t *routes; /* [layers][bins][rows] */
    int64_t *expert; /* [experts] */
};

static int64_t *cell_of(const struct loads *loads, int layer, int bin) {
    return loads->routes + ((size_t)layer * ITERATION_BINS + (size_t)bin) * (size_t)loads->rows;
}

static void gather_block(const struct shown *shown, const struct mp_trace_block *block, int64_t k,
                         struct loads *loads) {
    int bin = bin_of(shown, k);
    for (int i = 0; i < loads->layers; i++) {
        if (block->layer != loads->layer[i])
            continue;
        mp_load_expert_totals(&block->load, loads->expert);
        for (int e = 0; e < block->load.experts; e++)
            cell_of(loads, i, bin)[e / loads->width] += loads->expert[e];
    }
    if (k == 0 || bin_of(shown, k - 1) != bin)
        loads->iteration[bin] = block->iteration;
}

/* The trace once more, as the layers are only known behind it. */
static int gather(const struct shown *shown, struct loads *loads, struct mp_error *error) {
    MP_AUTO(stream) struct mp_trace_stream *stream = NULL;
    const struct mp_trace_block *block;
    int64_t blocks = 0,
            stride = (int64_t)shown->info->shape.layers * shown->info->shape.micro_batches;
    MP_TRY(mp_trace_open(shown->path, &stream, error));
    for (;;) {
        MP_TRY(mp_trace_next(stream, &block, error));
        if (!block)
            return MP_OK;
        gather_block(shown, block, blocks++ / stride, loads);
    }
}

/* The heat map of one layer. */
static json_t *pack_experts(const struct shown *shown, const struct loads *loads, int i,
                            struct mp_error *error) {
    const int layer = loads->layer[i], experts = shown->info->shape.experts;
    char label[96];
    json_t *data = map_data("iteration", "expert", "value");
    int bins = bin_of(shown, shown->load->of.iterations - 1) + 1, code = MP_OK;
    for (int b = 0; b < bins; b++) {
        double all = 0;
        for (int row = 0; row < loads->rows; row++)
            all += (double)cell_of(loads, i, b)[row];
        for (int row = 0; row < loads->rows && all > 0 && !code; row++) {
            int first = row * loads->width;
            int width = experts - first < loads->width ? experts - first : loads->width;
            double mean = (double)cell_of(loads, i, b)[row] / width / (all / experts);
            code = map_add(
                data,
                json_pack("[I, i, f]", (json_int_t)loads->iteration[b], first, map_number(mean)),
                error);
        }
    }
    snprintf(label, sizeof label, "layer %d (fullest expert %.2f x mean)", layer,
             shown->load[1 + layer].of.median[MP_EXPERT_MAX_OVER_MEAN]);
    return page_choice(label, data, NULL);
}

static int write_experts(struct page *page, const struct shown *shown, struct mp_error *error) {
    const int experts = shown->info->shape.experts, layers = shown->info->shape.layers;
    struct loads loads = {.width = (experts + MAP_EXPERTS - 1) / MAP_EXPERTS};
    double *uneven;
    loads.rows = (experts + loads.width - 1) / loads.width;
    MP_TAKE(shown->arena, uneven, layers);
    MP_TAKE(shown->arena, loads.routes, (size_t)MAPS * ITERATION_BINS * (size_t)loads.rows);
    MP_TAKE(shown->arena, loads.expert, experts);
    MP_TRY(mp_arena_check(shown->arena, error));
    for (int l = 0; l < layers; l++)
        uneven[l] = shown->load[1 + l].of.median[MP_EXPERT_MAX_OVER_MEAN];
    loads.layers = choose_layers(uneven, layers, loads.layer);
    MP_TRY(gather(shown, &loads, error));
    json_t *choices = json_array();
    for (int i = 0; i < loads.layers; i++)
        json_array_append_new(choices, pack_experts(shown, &loads, i, error));
    return page_figure(page, "experts", "Routes per expert",
                       "Routes of each expert over the mean of its layer, over iterations: blue "
                       "has fewer, orange more, four times as many in full.  Of many iterations "
                       "or experts a cell is the mean.",
                       "Layer", choices, error);
}

static int write_body(const void *context, struct page *page, struct mp_error *error) {
    const struct shown *shown = context;
    MP_AUTO(text) char *words = NULL;
    size_t size;
    FILE *memory = open_memstream(&words, &size);
    if (!memory)
        return mp_no_memory(error);
    cli_print_trace(memory, shown->info, &shown->load->of);
    if (fclose(memory))
        return mp_no_memory(error);
    page_begin(page->out, shown->path, words);
    MP_TRY(write_imbalance(page, shown, error));
    MP_TRY(write_experts(page, shown, error));
    table_html(&shown->loads, about_loads, page->out);
    if (shown->tokens) {
        MP_TRY(write_transitions(page, shown, error));
        table_html(&shown->by_token, about_tokens, page->out);
    }
    page_end(page->out);
    return MP_OK;
}

/* ---- all of it ---- */

static int summarise(struct shown *shown, struct mp_error *error) {
    const int layers = shown->info->shape.layers;
    MP_TAKE(shown->arena, shown->load, 1 + layers);
    MP_TAKE(shown->arena, shown->token, layers);
    MP_TRY(mp_arena_check(shown->arena, error));
    for (int l = -1; l < layers; l++) {
        struct load_row *row = &shown->load[1 + l];
        row->layer = l;
        MP_TRY(mp_trace_statistics_summarise(shown->statistics, l, &row->of, error));
    }
    for (int l = 0; l < layers && shown->tokens; l++) {
        shown->token[l].layer = l;
        mp_token_statistics_summarise(shown->tokens, l, &shown->token[l].of);
    }
    shown->loads = table_of(load_columns, MP_LENGTH(load_columns));
    shown->by_token = table_of(token_columns, MP_LENGTH(token_columns));
    MP_TRY(table_fill(&shown->loads, shown->load, 1 + layers, sizeof *shown->load, error));
    return table_fill(&shown->by_token, shown->token, shown->tokens ? layers : 0,
                      sizeof *shown->token, error);
}

static int show(struct shown *shown, bool json, const struct mp_page_output *output,
                struct mp_error *error) {
    MP_TRY(summarise(shown, error));
    struct page page = {.title = "moeperf: a trace"};
    if (output->html || output->figures)
        return page_write(output, &page, write_body, shown, error);
    if (json)
        return print_json(shown, error);
    cli_print_trace(stdout, shown->info, &shown->load->of);
    print_layers(&shown->loads, about_loads);
    if (shown->tokens)
        print_layers(&shown->by_token, about_tokens);
    return MP_OK;
}

int cli_show_trace(const char *path, bool json, const struct mp_page_output *page,
                   struct mp_error *error) {
    MP_AUTO(stream) struct mp_trace_stream *stream = NULL;
    MP_AUTO(statistics) struct mp_trace_statistics *statistics = NULL;
    MP_AUTO(token_statistics) struct mp_token_statistics *tokens = NULL;
    MP_TRY(mp_trace_open(path, &stream, error));
    MP_TRY(cli_measure_trace(stream, &statistics, &tokens, error));
    MP_AUTO(arena) struct mp_arena arena = {0};
    struct shown shown = {.path = path,
                          .info = mp_trace_stream_info(stream),
                          .statistics = statistics,
                          .tokens = tokens,
                          .arena = &arena};
    const int code = show(&shown, json, page, error);
    table_free(&shown.loads);
    table_free(&shown.by_token);
    return code;
}
