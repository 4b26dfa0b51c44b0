#include "harness/cli/show_trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/show_tokens.h"
#include "harness/cli/trace_file.h"

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

static struct cli_layers load_layers(const struct shown *shown) {
    static const char about[] =
        "Medians over blocks; fullest expert, and rank, over the mean, with the experts where "
        "plain expert parallelism has them; effective experts: as many equally loaded ones would "
        "be as uneven; dead: without routes; correlation: of a layer's routes by expert with those "
        "so many iterations later.";
    return (struct cli_layers){.column = columns,
                               .numbers = NUMBERS,
                               .first = -1,
                               .layers = shown->info->shape.layers,
                               .about = about,
                               .read = read_numbers,
                               .context = shown};
}

static struct cli_layers token_layers(const struct shown *shown) {
    return cli_token_layers(shown->tokens, shown->info->shape.layers);
}

static json_t *number(double value) {
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *pack_layer(const struct shown *shown, int layer) {
    const struct mp_trace_summary *summary = layer < 0 ? &shown->all : &shown->layer[layer];
    const struct cli_layers layers = load_layers(shown);
    json_t *object = cli_layers_pack(&layers, layer);
    json_object_set_new(object, "routes", json_integer(summary->routes));
    json_object_set_new(object, "worst_expert_max_over_mean", number(summary->worst));
    json_object_set_new(object, "worst_iteration", json_integer(summary->worst_at.iteration));
    return object;
}

static int print_json(const struct shown *shown, struct mp_error *error) {
    const struct mp_trace_info *info = shown->info;
    const struct mp_trace_shape *shape = &info->shape;
    const struct cli_layers tokens = token_layers(shown);
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
                  shown->tokens ? cli_layers_pack_all(&tokens) : NULL),
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
    json_t *data = cli_map_data(names);
    int code = MP_OK;
    for (int l = 0; l < shown->info->shape.layers && !code; l++) {
        int64_t bins = fill_layer(shown, l, cells);
        for (int64_t b = 0; b < bins && !code; b++) {
            double value = mean_of(&cells[b], 0), ranks = mean_of(&cells[b], 1);
            if (isnan(value))
                continue;
            code = cli_map_add(data,
                               json_pack("[I, i, f, o]", (json_int_t)cells[b].iteration, l,
                                         cli_map_number(value), number(cli_map_number(ranks))),
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
    int layers, layer[CLI_MAPS], rows, width; /* of `width` experts each */
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
    json_t *data = cli_map_data(names);
    int bins = bin_of(shown, shown->all.iterations - 1) + 1, code = MP_OK;
    for (int b = 0; b < bins; b++) {
        double all = 0;
        for (int row = 0; row < loads->rows; row++)
            all += (double)cell_of(loads, i, b)[row];
        for (int row = 0; row < loads->rows && all > 0 && !code; row++) {
            int first = row * loads->width;
            int width = experts - first < loads->width ? experts - first : loads->width;
            double mean = (double)cell_of(loads, i, b)[row] / width / (all / experts);
            code = cli_map_add(data,
                               json_pack("[I, i, f]", (json_int_t)loads->iteration[b], first,
                                         cli_map_number(mean)),
                               error);
        }
    }
    snprintf(label, sizeof label, "layer %d (fullest expert %.2f x mean)", layer,
             shown->layer[layer].median[MP_EXPERT_MAX_OVER_MEAN]);
    return page_choice(label, data, NULL);
}

static int write_experts(struct page *page, const struct shown *shown, struct mp_error *error) {
    const int experts = shown->info->shape.experts;
    struct loads loads = {.width = (experts + CLI_MAP_EXPERTS - 1) / CLI_MAP_EXPERTS};
    loads.layers = cli_choose_layers(shown->uneven, shown->info->shape.layers, loads.layer);
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
    const struct cli_layers loads = load_layers(shown), tokens = token_layers(shown);
    int code = write_imbalance(page, shown, error);
    if (!code)
        code = write_experts(page, shown, error);
    if (!code)
        code = cli_layers_write(&loads, page->out, error);
    if (!code && shown->tokens) {
        code = cli_write_transitions(page, shown->tokens, &shown->info->shape, error);
        code = code ? code : cli_layers_write(&tokens, page->out, error);
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
    int code = summarise(shown, error);
    if (code)
        return code;
    struct page page = {.title = "moeperf: a trace"};
    if (output->html || output->figures)
        return page_write(output, &page, write_body, shown, error);
    if (json)
        return print_json(shown, error);
    cli_print_trace(stdout, shown->info, &shown->all);
    const struct cli_layers loads = load_layers(shown), tokens = token_layers(shown);
    code = cli_layers_print(&loads, error);
    return code || !shown->tokens ? code : cli_layers_print(&tokens, error);
}

int cli_show_trace(const char *path, bool json, const struct mp_page_output *page,
                   struct mp_error *error) {
    struct mp_trace_stream *stream;
    struct mp_trace_statistics *statistics;
    struct mp_token_statistics *tokens = NULL;
    int code = mp_trace_open(path, &stream, error);
    if (code)
        return code;
    code = cli_measure_trace(stream, &statistics, error);
    if (!code)
        code = cli_measure_tokens(path, &tokens, error);
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
