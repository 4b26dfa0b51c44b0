#include "harness/cli/show_trace.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/trace_file.h"
#include "harness/workload/tokens.h"
#include "results/report/page.h"
#include "results/report/query.h"
#include "results/report/table.h"

/* ---- numbers of layers ---- */

enum { LAYER_NUMBERS = 11 }; /* most of a layer; a table has the layer's number, too */

struct layers {
    const struct table_column *column; /* the layer's number, then [numbers] */
    int numbers, first, layers;        /* first: -1, whose row is of all layers, or 0 */
    const char *about;                 /* a paragraph behind the table */
    /* NAN: there is none. */
    void (*read)(const void *context, int layer, double value[]);
    const void *context;
};

/* Layers that are drawn, and rows and columns of a map of experts, at most. */
enum { MAPS = 4, MAP_EXPERTS = 64 };

static int fill_table(const struct layers *layers, struct table *table, struct mp_error *error) {
    double value[LAYER_NUMBERS];
    table_init(table, layers->column, 1 + layers->numbers);
    for (int layer = layers->first; layer < layers->layers; layer++) {
        layers->read(layers->context, layer, value);
        MP_TRY(table_add(table, NULL, error));
        table_set(table, 0, layer < 0 ? "all" : "%d", layer);
        for (int i = 0; i < layers->numbers; i++)
            table_number(table, 1 + i, value[i]);
    }
    return MP_OK;
}

static int layers_print(const struct layers *layers, struct mp_error *error) {
    struct table table;
    int code = fill_table(layers, &table, error);
    if (!code) {
        putchar('\n');
        table_print(&table, stdout);
        putchar('\n');
        table_paragraph(stdout, "%s", layers->about);
    }
    table_free(&table);
    return code;
}

static int layers_write(const struct layers *layers, FILE *page, struct mp_error *error) {
    struct table table;
    int code = fill_table(layers, &table, error);
    if (!code)
        table_html(&table, layers->about, page);
    table_free(&table);
    return code;
}

/* Its layer, null of all, and its numbers; NULL: no memory. */
static json_t *layers_pack(const struct layers *layers, int layer) {
    double value[LAYER_NUMBERS];
    json_t *object = json_pack("{s:o}", "layer", layer < 0 ? json_null() : json_integer(layer));
    layers->read(layers->context, layer, value);
    for (int i = 0; i < layers->numbers; i++)
        json_object_set_new(object, layers->column[1 + i].key, number_value(value[i]));
    return object;
}

/* Of every layer, without that of all. */
static json_t *layers_pack_all(const struct layers *layers) {
    json_t *array = json_array();
    for (int layer = 0; layer < layers->layers; layer++)
        json_array_append_new(array, layers_pack(layers, layer));
    return array;
}

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

/* A table of Vega's with these columns; `names` ends with NULL. */
static json_t *map_data(const char *const names[]) {
    json_t *data = page_data();
    for (; *names; names++)
        json_array_append_new(json_object_get(data, "columns"), json_string(*names));
    return data;
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

/* ---- tokens ---- */

static const struct table_column token_columns[] = {
    {"layer", .kind = TABLE_LEFT},
    {"next\ntold", TABLE_NUMBER, "%", "next_most_frequent", .decimals = 1},
    {"without\npresent", TABLE_NUMBER, "%", "next_most_frequent_independent", .decimals = 1},
    {"present\ntells", TABLE_NUMBER, "bits", "next_information_bits", .decimals = 3},
    {"of", TABLE_NUMBER, "bits", "next_entropy_bits", .decimals = 3},
    {"ranks per\ntoken", TABLE_NUMBER, NULL, "ranks_per_token", .decimals = 3},
    {"by counts\nalone", TABLE_NUMBER, NULL, "ranks_per_token_independent", .decimals = 3},
};
enum { TOKEN_NUMBERS = sizeof token_columns / sizeof *token_columns - 1 };

static void read_token_numbers(const void *context, int layer, double value[]) {
    struct mp_token_summary summary;
    mp_token_statistics_summarise(context, layer, &summary);
    const double all[] = {summary.most,        summary.most_independent,
                          summary.information, summary.entropy,
                          summary.ranks,       summary.ranks_independent};
    memcpy(value, all, sizeof all);
}

/* Numbers by layer of borrowed statistics. */
static struct layers token_layers(const struct mp_token_statistics *statistics, int layers) {
    static const char about[] =
        "Of tokens, from the layer before: how many of their next experts are the most frequent "
        "one after their present expert, and would be if all were held for the layer's most "
        "frequent one; how many bits their present expert tells of the next, of how many. And on "
        "how many ranks a token's experts are, where plain expert parallelism has them, beside "
        "what counts alone let one think: experts drawn with them as probabilities.";
    return (struct layers){.column = token_columns,
                           .numbers = TOKEN_NUMBERS,
                           .layers = layers,
                           .about = about,
                           .read = read_token_numbers,
                           .context = statistics};
}

/* Reads the trace once more; *statistics is NULL if it has no experts of tokens. */
static int measure_tokens(const char *path, struct mp_token_statistics **statistics,
                          struct mp_error *error) {
    const struct mp_trace_block *block;
    struct mp_trace_stream *stream;
    *statistics = NULL;
    int code = mp_trace_open(path, &stream, error);
    if (code)
        return code;
    if (mp_trace_stream_info(stream)->routes)
        code = mp_token_statistics_create(&mp_trace_stream_info(stream)->shape, statistics, error);
    while (!code && *statistics && !(code = mp_trace_next(stream, &block, error)) && block)
        code = mp_token_statistics_add(*statistics, block, error);
    mp_trace_stream_destroy(stream);
    if (code) {
        mp_token_statistics_destroy(*statistics);
        *statistics = NULL;
    }
    return code;
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
    static const char *const names[] = {"next", "expert", "value", NULL};
    char label[96], before[48], after[48];
    json_t *data = map_data(names);
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

/* The layers behind the first. */
static json_t *pack_maps(const struct mp_token_statistics *statistics, int layers, int experts,
                         struct map *map, double bits[], struct mp_error *error) {
    json_t *choices = json_array();
    int chosen[MAPS];
    for (int l = 1; l < layers; l++) {
        struct mp_token_summary summary;
        mp_token_statistics_summarise(statistics, l, &summary);
        bits[l - 1] = isnan(summary.information) ? -1 : summary.information;
    }
    int count = choose_layers(bits, layers - 1, chosen);
    for (int i = 0; i < count; i++) {
        int layer = chosen[i] + 1;
        gather_transitions(mp_token_statistics_transitions(statistics, layer), experts, map);
        if (map->all > 0)
            json_array_append_new(choices, pack_map(map, layer, bits[chosen[i]], error));
    }
    return choices;
}

/* Heat maps, from the experts of a layer to those of the next one: how many times as many
 * transitions there are as if neither layer's expert told anything of the other.  Of at most four
 * layers: those whose experts tell most, next most, median and least.  Of many experts a cell is
 * of several neighbours.  MP_ENOMEM. */
static int write_transitions(struct page *page, const struct mp_token_statistics *statistics,
                             const struct mp_trace_shape *shape, struct mp_error *error) {
    struct map map = {.width = (shape->experts + MAP_EXPERTS - 1) / MAP_EXPERTS};
    map.groups = (shape->experts + map.width - 1) / map.width;
    const size_t groups = (size_t)map.groups;
    double *bits = calloc((size_t)shape->layers, sizeof *bits);
    map.cell = calloc(groups * (groups + 2), sizeof *map.cell);
    json_t *choices = NULL;
    if (bits && map.cell) {
        map.from = map.cell + groups * groups;
        map.to = map.from + groups;
        choices = pack_maps(statistics, shape->layers, shape->experts, &map, bits, error);
    }
    free(bits);
    free(map.cell);
    if (!choices)
        return mp_fail(error, MP_ENOMEM, "no memory for the page");
    return page_figure(page, "experts", "From layer to layer",
                       "Tokens that go from an expert of a layer to one of the next: how "
                       "many times as many as if neither told anything of the other; blue "
                       "are fewer, orange more.  Of many experts a cell is of neighbours.",
                       "Layers", choices, error);
}

/* A heat map's cells at most, as the report has of runs. */
enum { ITERATION_BINS = 40 };

/* A trace that was read. */
struct shown {
    const char *path;
    const struct mp_trace_info *info;
    const struct mp_trace_statistics *statistics;
    const struct mp_token_statistics *tokens; /* NULL: the trace has none */
    struct mp_trace_summary all, *layer;      /* [layers] */
    double *uneven;                           /* [layers] fullest expert over the mean */
};

bool cli_is_trace(const char *name) {
    const char *ending = strrchr(name, '.');
    return ending && !strcmp(ending, ".mptrace");
}

/* ---- numbers ---- */

static const struct table_column columns[] = {
    {"layer", .kind = TABLE_LEFT},
    {"fullest\nexpert", TABLE_NUMBER, NULL, "expert_max_over_mean", .decimals = 2},
    {"fullest\nrank", TABLE_NUMBER, NULL, "rank_max_over_mean", .decimals = 2},
    {"effective\nexperts", TABLE_NUMBER, NULL, "effective_experts", .decimals = 1},
    {"dead", TABLE_NUMBER, "%", "dead_fraction", .decimals = 1},
    {"correlation\n1 later", TABLE_NUMBER, NULL, "correlation_1", .decimals = 3},
    {"corr.\n10 later", TABLE_NUMBER, NULL, "correlation_10", .decimals = 3},
    {"corr.\n100 later", TABLE_NUMBER, NULL, "correlation_100", .decimals = 3},
};
enum { NUMBERS = sizeof columns / sizeof *columns - 1 };

static void read_numbers(const void *context, int layer, double value[]) {
    const struct shown *shown = context;
    const struct mp_trace_summary *summary = layer < 0 ? &shown->all : &shown->layer[layer];
    memcpy(value, summary->median, sizeof summary->median);
    memcpy(value + MP_TRACE_MEASURES, summary->correlation, sizeof summary->correlation);
}

static struct layers load_layers(const struct shown *shown) {
    static const char about[] =
        "Medians over blocks; fullest expert, and rank, over the mean, with the experts where "
        "plain expert parallelism has them; effective experts: as many equally loaded ones would "
        "be as uneven; dead: without routes; correlation: of a layer's routes by expert with those "
        "so many iterations later.";
    return (struct layers){.column = columns,
                           .numbers = NUMBERS,
                           .first = -1,
                           .layers = shown->info->shape.layers,
                           .about = about,
                           .read = read_numbers,
                           .context = shown};
}

static json_t *pack_layer(const struct shown *shown, int layer) {
    const struct mp_trace_summary *summary = layer < 0 ? &shown->all : &shown->layer[layer];
    const struct layers layers = load_layers(shown);
    json_t *object = layers_pack(&layers, layer);
    json_object_set_new(object, "routes", json_integer(summary->routes));
    json_object_set_new(object, "worst_expert_max_over_mean", number_value(summary->worst));
    json_object_set_new(object, "worst_iteration", json_integer(summary->worst_at.iteration));
    return object;
}

static int print_json(const struct shown *shown, struct mp_error *error) {
    const struct mp_trace_info *info = shown->info;
    const struct mp_trace_shape *shape = &info->shape;
    const struct layers tokens = token_layers(shown->tokens, shown->info->shape.layers);
    json_t *layers = json_array();
    for (int l = 0; l < shape->layers; l++)
        json_array_append_new(layers, pack_layer(shown, l));
    return cli_print_json(
        json_pack("{s:s, s:s, s:s?, s:s?, s:b, s:{s:i, s:i, s:i, s:i, s:i}, s:I, s:I, s:I, s:I, "
                  "s:I, s:o, s:o, s:o*}",
                  "kind", "trace", "path", shown->path, "source", info->source, "notes",
                  info->notes, "ragged", info->ragged, "shape", "ranks", shape->ranks, "experts",
                  shape->experts, "layers", shape->layers, "micro_batches", shape->micro_batches,
                  "top_k", shape->top_k, "iterations", (json_int_t)shown->all.iterations,
                  "first_iteration", (json_int_t)shown->all.first, "last_iteration",
                  (json_int_t)shown->all.last, "blocks", (json_int_t)shown->all.blocks,
                  "blocks_without_routes", (json_int_t)shown->all.empty, "all",
                  pack_layer(shown, -1), "by_layer", layers, "tokens_by_layer",
                  shown->tokens ? layers_pack_all(&tokens) : NULL),
        error);
}

/* ---- the page ---- */

/* Of the k-th iteration of the trace; bins are as even as they can be. */
static int bin_of(const struct shown *shown, int64_t k) {
    int64_t bins = shown->all.iterations < ITERATION_BINS ? shown->all.iterations : ITERATION_BINS;
    return (int)(k * bins / shown->all.iterations);
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
    static const char *const names[] = {"iteration", "layer", "value", "ranks", NULL};
    struct cell cells[ITERATION_BINS] = {{0}};
    json_t *data = map_data(names);
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
    struct mp_trace_stream *stream;
    const struct mp_trace_block *block;
    int64_t blocks = 0,
            stride = (int64_t)shown->info->shape.layers * shown->info->shape.micro_batches;
    int code = mp_trace_open(shown->path, &stream, error);
    if (code)
        return code;
    while (!(code = mp_trace_next(stream, &block, error)) && block)
        gather_block(shown, block, blocks++ / stride, loads);
    mp_trace_stream_destroy(stream);
    return code;
}

/* The heat map of one layer. */
static json_t *pack_experts(const struct shown *shown, const struct loads *loads, int i,
                            struct mp_error *error) {
    static const char *const names[] = {"iteration", "expert", "value", NULL};
    const int layer = loads->layer[i], experts = shown->info->shape.experts;
    char label[96];
    json_t *data = map_data(names);
    int bins = bin_of(shown, shown->all.iterations - 1) + 1, code = MP_OK;
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
             shown->layer[layer].median[MP_EXPERT_MAX_OVER_MEAN]);
    return page_choice(label, data, NULL);
}

static int write_experts(struct page *page, const struct shown *shown, struct mp_error *error) {
    const int experts = shown->info->shape.experts;
    struct loads loads = {.width = (experts + MAP_EXPERTS - 1) / MAP_EXPERTS};
    loads.layers = choose_layers(shown->uneven, shown->info->shape.layers, loads.layer);
    loads.rows = (experts + loads.width - 1) / loads.width;
    loads.routes =
        calloc((size_t)loads.layers * ITERATION_BINS * (size_t)loads.rows, sizeof *loads.routes);
    loads.expert = calloc((size_t)experts, sizeof *loads.expert);
    json_t *choices = json_array();
    int code = loads.routes && loads.expert && choices ? gather(shown, &loads, error)
                                                       : mp_no_memory(error);
    for (int i = 0; i < loads.layers && !code; i++)
        if (json_array_append_new(choices, pack_experts(shown, &loads, i, error)))
            code = mp_no_memory(error);
    free(loads.routes);
    free(loads.expert);
    if (code) {
        json_decref(choices);
        return code;
    }
    return page_figure(page, "experts", "Routes per expert",
                       "Routes of each expert over the mean of its layer, over iterations: blue "
                       "has fewer, orange more, four times as many in full.  Of many iterations "
                       "or experts a cell is the mean.",
                       "Layer", choices, error);
}

static int write_body(const void *context, struct page *page, struct mp_error *error) {
    const struct shown *shown = context;
    char *words = NULL;
    size_t size;
    FILE *memory = open_memstream(&words, &size);
    if (!memory)
        return mp_no_memory(error);
    cli_print_trace(memory, shown->info, &shown->all);
    if (fclose(memory)) {
        free(words);
        return mp_no_memory(error);
    }
    page_begin(page->out, shown->path, words);
    free(words);
    const struct layers loads = load_layers(shown),
                        tokens = token_layers(shown->tokens, shown->info->shape.layers);
    int code = write_imbalance(page, shown, error);
    if (!code)
        code = write_experts(page, shown, error);
    if (!code)
        code = layers_write(&loads, page->out, error);
    if (!code && shown->tokens) {
        code = write_transitions(page, shown->tokens, &shown->info->shape, error);
        code = code ? code : layers_write(&tokens, page->out, error);
    }
    page_end(page->out);
    return code;
}

/* ---- all of it ---- */

static int summarise(struct shown *shown, struct mp_error *error) {
    const int layers = shown->info->shape.layers;
    int code = MP_OK;
    shown->layer = calloc((size_t)layers, sizeof *shown->layer);
    shown->uneven = calloc((size_t)layers, sizeof *shown->uneven);
    if (!shown->layer || !shown->uneven)
        return mp_fail(error, MP_ENOMEM, "no memory for the statistics of %d layers", layers);
    for (int l = 0; l < layers && !code; l++) {
        code = mp_trace_statistics_summarise(shown->statistics, l, &shown->layer[l], error);
        shown->uneven[l] = shown->layer[l].median[MP_EXPERT_MAX_OVER_MEAN];
    }
    return code ? code : mp_trace_statistics_summarise(shown->statistics, -1, &shown->all, error);
}

static int show(struct shown *shown, bool json, const struct mp_page_output *output,
                struct mp_error *error) {
    MP_TRY(summarise(shown, error));
    struct page page = {.title = "moeperf: a trace"};
    if (output->html || output->figures)
        return page_write(output, &page, write_body, shown, error);
    if (json)
        return print_json(shown, error);
    cli_print_trace(stdout, shown->info, &shown->all);
    const struct layers loads = load_layers(shown),
                        tokens = token_layers(shown->tokens, shown->info->shape.layers);
    int code = layers_print(&loads, error);
    return code || !shown->tokens ? code : layers_print(&tokens, error);
}

int cli_show_trace(const char *path, bool json, const struct mp_page_output *page,
                   struct mp_error *error) {
    struct mp_trace_stream *stream;
    struct mp_trace_statistics *statistics;
    struct mp_token_statistics *tokens = NULL;
    MP_TRY(mp_trace_open(path, &stream, error));
    int code = cli_measure_trace(stream, &statistics, error);
    if (!code)
        code = measure_tokens(path, &tokens, error);
    struct shown shown = {path, mp_trace_stream_info(stream), statistics, tokens, {0}, NULL, NULL};
    if (!code)
        code = show(&shown, json, page, error);
    free(shown.layer);
    free(shown.uneven);
    mp_token_statistics_destroy(tokens);
    mp_trace_statistics_destroy(statistics);
    mp_trace_stream_destroy(stream);
    return code;
}
