#include "harness/cli/show_tokens.h"

#include <math.h>
#include <string.h>

static const struct table_column columns[] = {
    {"layer", .kind = TABLE_LEFT},
    {"next\ntold", TABLE_NUMBER, "%", "next_most_frequent", .decimals = 1},
    {"without\npresent", TABLE_NUMBER, "%", "next_most_frequent_independent", .decimals = 1},
    {"present\ntells", TABLE_NUMBER, "bits", "next_information_bits", .decimals = 3},
    {"of", TABLE_NUMBER, "bits", "next_entropy_bits", .decimals = 3},
    {"ranks per\ntoken", TABLE_NUMBER, NULL, "ranks_per_token", .decimals = 3},
    {"by counts\nalone", TABLE_NUMBER, NULL, "ranks_per_token_independent", .decimals = 3},
};
enum { NUMBERS = sizeof columns / sizeof *columns - 1 };

static void read_numbers(const void *context, int layer, double value[]) {
    struct mp_token_summary summary;
    mp_token_statistics_summarise(context, layer, &summary);
    const double all[] = {summary.most,        summary.most_independent,
                          summary.information, summary.entropy,
                          summary.ranks,       summary.ranks_independent};
    memcpy(value, all, sizeof all);
}

struct cli_layers cli_token_layers(const struct mp_token_statistics *statistics, int layers) {
    static const char about[] =
        "Of tokens, from the layer before: how many of their next experts are the most frequent "
        "one after their present expert, and would be if all were held for the layer's most "
        "frequent one; how many bits their present expert tells of the next, of how many. And on "
        "how many ranks a token's experts are, where plain expert parallelism has them, beside "
        "what counts alone let one think: experts drawn with them as probabilities.";
    return (struct cli_layers){.column = columns,
                               .numbers = NUMBERS,
                               .layers = layers,
                               .about = about,
                               .read = read_numbers,
                               .context = statistics};
}

int cli_measure_tokens(const char *path, struct mp_token_statistics **statistics,
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

/* ---- transitions ---- */

/* Transitions of groups of `width` experts. */
struct map {
    int groups, width;
    double all, *cell, *from, *to; /* [groups][groups], [groups] each */
};

static void gather(const uint64_t next[], int experts, struct map *map) {
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
    json_t *data = cli_map_data(names);
    for (int i = 0; i < map->groups; i++)
        for (int j = 0; j < map->groups; j++) {
            double chance = map->from[i] * map->to[j] / map->all;
            if (chance > 0 &&
                cli_map_add(data,
                            json_pack("[i, i, f]", j * map->width, i * map->width,
                                      cli_map_number(map->cell[i * map->groups + j] / chance)),
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
    int chosen[CLI_MAPS];
    for (int l = 1; l < layers; l++) {
        struct mp_token_summary summary;
        mp_token_statistics_summarise(statistics, l, &summary);
        bits[l - 1] = isnan(summary.information) ? -1 : summary.information;
    }
    int count = cli_choose_layers(bits, layers - 1, chosen);
    for (int i = 0; i < count; i++) {
        int layer = chosen[i] + 1;
        gather(mp_token_statistics_transitions(statistics, layer), experts, map);
        if (map->all > 0)
            json_array_append_new(choices, pack_map(map, layer, bits[chosen[i]], error));
    }
    return choices;
}

int cli_write_transitions(struct page *page, const struct mp_token_statistics *statistics,
                          const struct mp_trace_shape *shape, struct mp_error *error) {
    struct map map = {.width = (shape->experts + CLI_MAP_EXPERTS - 1) / CLI_MAP_EXPERTS};
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
