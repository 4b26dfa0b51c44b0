/* Numbers of a trace's layers, as `moeperf show` has them: a table, a page's table and JSON. */
#ifndef MOEPERF_HARNESS_CLI_SHOW_LAYERS_H
#define MOEPERF_HARNESS_CLI_SHOW_LAYERS_H

#include <jansson.h>
#include <stdio.h>

#include "results/report/table.h"

enum { CLI_LAYER_NUMBERS = 11 }; /* most of a layer; a table has the layer's number, too */

struct cli_layers {
    const struct table_column *column; /* the layer's number, then [numbers] */
    int numbers, first, layers;        /* first: -1, whose row is of all layers, or 0 */
    const char *about;                 /* a paragraph behind the table */
    /* NAN: there is none. */
    void (*read)(const void *context, int layer, double value[]);
    const void *context;
};

int cli_layers_print(const struct cli_layers *layers, struct mp_error *error);
int cli_layers_write(const struct cli_layers *layers, FILE *page, struct mp_error *error);
/* Its layer, null of all, and its numbers; NULL: no memory. */
json_t *cli_layers_pack(const struct cli_layers *layers, int layer);
/* Of every layer, without that of all. */
json_t *cli_layers_pack_all(const struct cli_layers *layers);

/* ---- heat maps ---- */

/* Layers that are drawn, and rows and columns of a map of experts, at most. */
enum { CLI_MAPS = 4, CLI_MAP_EXPERTS = 64 };

/* Of these, the layer with the largest value, that with the next, the median and the least. */
int cli_choose_layers(const double value[], int layers, int chosen[CLI_MAPS]);

/* A table of Vega's with these columns; `names` ends with NULL. */
json_t *cli_map_data(const char *const names[]);
/* Consumes the row.  MP_ENOMEM. */
int cli_map_add(json_t *data, json_t *row, struct mp_error *error);
/* To hundredths: a page has many of them. */
double cli_map_number(double value);

#endif
