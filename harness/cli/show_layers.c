#include "harness/cli/show_layers.h"

#include <math.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "results/report/page.h"
#include "results/report/table.h"

enum { CELL = 32 };

/* Its row's cells; an empty one where there is no number. */
static void fill_cells(const struct cli_layers *layers, int layer,
                       char cell[1 + CLI_LAYER_NUMBERS][CELL]) {
    double value[CLI_LAYER_NUMBERS];
    layers->read(layers->context, layer, value);
    snprintf(cell[0], CELL, "all");
    if (layer >= 0)
        snprintf(cell[0], CELL, "%d", layer);
    for (int i = 0; i < layers->numbers; i++) {
        const struct cli_layer_number *number = &layers->number[i];
        *cell[1 + i] = '\0';
        if (!isnan(value[i]))
            snprintf(cell[1 + i], CELL, "%.*f", number->decimals, value[i] * number->scale);
    }
}

int cli_layers_print(const struct cli_layers *layers, struct mp_error *error) {
    struct table_column head[1 + CLI_LAYER_NUMBERS] = {{"layer", TABLE_LEFT}};
    char cell[1 + CLI_LAYER_NUMBERS][CELL];
    struct table table;
    int row, code = MP_OK;
    for (int i = 0; i < layers->numbers; i++)
        head[1 + i] = (struct table_column){layers->number[i].header, TABLE_RIGHT};
    table_init(&table, head, 1 + layers->numbers);
    for (int layer = layers->first; layer < layers->layers && !code; layer++) {
        fill_cells(layers, layer, cell);
        code = table_add(&table, &row, error);
        for (int i = 0; i <= layers->numbers && !code; i++)
            table_set(&table, i, "%s", *cell[i] ? cell[i] : "-");
    }
    if (!code) {
        putchar('\n');
        table_print(&table, stdout);
        putchar('\n');
        table_paragraph(stdout, "%s", layers->about);
    }
    table_free(&table);
    return code;
}

/* On a page every column has a whole name. */
static void name_columns(const struct cli_layers *layers, char name[CLI_LAYER_NUMBERS][CELL]) {
    int begun = 0;
    for (int i = 0; i < layers->numbers; i++) {
        const char *header = layers->number[i].header;
        if (*header == '\n') {
            const char *before = layers->number[begun].header;
            snprintf(name[i], CELL, "%.*s%s", (int)strcspn(before, "\n"), before, header);
        } else {
            snprintf(name[i], CELL, "%s", header);
            begun = i;
        }
    }
}

void cli_layers_write(const struct cli_layers *layers, FILE *page) {
    struct page_column head[1 + CLI_LAYER_NUMBERS + 1] = {{"layer", PAGE_NUMBER}};
    char name[CLI_LAYER_NUMBERS][CELL], cell[1 + CLI_LAYER_NUMBERS][CELL];
    name_columns(layers, name);
    for (int i = 0; i < layers->numbers; i++)
        head[1 + i] = (struct page_column){name[i], PAGE_NUMBER};
    page_table_open(page, head, layers->about);
    for (int layer = layers->first; layer < layers->layers; layer++) {
        fill_cells(layers, layer, cell);
        for (int i = 0; i <= layers->numbers; i++)
            page_table_cell(page, head, i, cell[i]);
    }
    page_table_close(page);
}

json_t *cli_layers_pack(const struct cli_layers *layers, int layer) {
    double value[CLI_LAYER_NUMBERS];
    json_t *object = json_pack("{s:o}", "layer", layer < 0 ? json_null() : json_integer(layer));
    layers->read(layers->context, layer, value);
    for (int i = 0; i < layers->numbers; i++)
        json_object_set_new(object, layers->number[i].key,
                            isnan(value[i]) ? json_null() : json_real(value[i]));
    return object;
}

json_t *cli_layers_pack_all(const struct cli_layers *layers) {
    json_t *array = json_array();
    for (int layer = 0; layer < layers->layers; layer++)
        json_array_append_new(array, cli_layers_pack(layers, layer));
    return array;
}

int cli_choose_layers(const double value[], int layers, int chosen[CLI_MAPS]) {
    const int wanted[CLI_MAPS] = {0, 1, layers / 2, layers - 1};
    int count = 0;
    for (int w = 0; w < CLI_MAPS; w++) {
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

json_t *cli_map_data(const char *const names[]) {
    json_t *data = page_data();
    for (; *names; names++)
        json_array_append_new(json_object_get(data, "columns"), json_string(*names));
    return data;
}

int cli_map_add(json_t *data, json_t *row, struct mp_error *error) {
    return json_array_append_new(json_object_get(data, "rows"), row)
               ? mp_fail(error, MP_ENOMEM, "no memory for the page")
               : MP_OK;
}

double cli_map_number(double value) {
    return round(100 * value) / 100;
}
