#include "harness/cli/show_tokens.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "results/report/table.h"

enum { COLUMNS = 7 };
static const struct {
    const char *key, *header; /* of JSON, of the table */
    int decimals;
    double scale; /* in the table */
} columns[COLUMNS] = {
    {"layer", "layer", 0, 1},
    {"next_most_frequent", "next\ntold %", 1, 100},
    {"next_most_frequent_independent", "without\npresent %", 1, 100},
    {"next_information_bits", "present\ntells bits", 3, 1},
    {"next_entropy_bits", "of\nbits", 3, 1},
    {"ranks_per_token", "ranks per\ntoken", 3, 1},
    {"ranks_per_token_independent", "by counts\nalone", 3, 1},
};

static void values_of(const struct mp_token_statistics *statistics, int layer,
                      double value[COLUMNS]) {
    struct mp_token_summary summary;
    mp_token_statistics_summarise(statistics, layer, &summary);
    const double all[COLUMNS] = {
        layer,           summary.most,  summary.most_independent, summary.information,
        summary.entropy, summary.ranks, summary.ranks_independent};
    memcpy(value, all, sizeof all);
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

int cli_print_tokens(const struct mp_token_statistics *statistics, int layers,
                     struct mp_error *error) {
    struct table_column head[COLUMNS];
    struct table table;
    int row, code = MP_OK;
    for (int c = 0; c < COLUMNS; c++)
        head[c] = (struct table_column){columns[c].header, c ? TABLE_RIGHT : TABLE_LEFT};
    table_init(&table, head, COLUMNS);
    for (int l = 0; l < layers && !code; l++) {
        double value[COLUMNS];
        values_of(statistics, l, value);
        code = table_add(&table, &row, error);
        for (int c = 0; c < COLUMNS && !code; c++)
            table_set_number(&table, c, value[c] * columns[c].scale, columns[c].decimals);
    }
    if (!code) {
        putchar('\n');
        table_print(&table, stdout);
        putchar('\n');
        table_paragraph(
            stdout, "Of tokens, from the layer before: how many of their next experts are the most "
                    "frequent one after their present expert, and would be if all were held for "
                    "the layer's most frequent one; how many bits their present expert tells of "
                    "the next, of how many. And on how many ranks a token's experts are, where "
                    "plain expert parallelism has them, beside what counts alone let one think: "
                    "experts drawn with them as probabilities.");
    }
    table_free(&table);
    return code;
}

json_t *cli_pack_tokens(const struct mp_token_statistics *statistics, int layers) {
    json_t *array = json_array();
    for (int l = 0; l < layers; l++) {
        double value[COLUMNS];
        json_t *object = json_pack("{s:i}", columns[0].key, l);
        values_of(statistics, l, value);
        for (int c = 1; c < COLUMNS; c++)
            json_object_set_new(object, columns[c].key,
                                isnan(value[c]) ? json_null() : json_real(value[c]));
        json_array_append_new(array, object);
    }
    return array;
}
