#include "harness/cli/show_layers.h"

#include <math.h>

#include "harness/cli/cli.h"
#include "results/report/page.h"
#include "results/report/table.h"

static int fill_table(const struct cli_layers *layers, struct table *table,
                      struct mp_error *error) {
    double value[CLI_LAYER_NUMBERS];
    int code = MP_OK;
    table_init(table, layers->column, 1 + layers->numbers);
    for (int layer = layers->first; layer < layers->layers && !code; layer++) {
        layers->read(layers->context, layer, value);
        code = table_add(table, NULL, error);
        if (!code)
            table_set(table, 0, layer < 0 ? "all" : "%d", layer);
        for (int i = 0; i < layers->numbers && !code; i++)
            table_number(table, 1 + i, value[i]);
    }
    return code;
}

int cli_layers_print(const struct cli_layers *layers, struct mp_error *error) {
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

int cli_layers_write(const struct cli_layers *layers, FILE *page, struct mp_error *error) {
    struct table table;
    int code = fill_table(layers, &table, error);
    if (!code)
        table_html(&table, layers->about, page);
    table_free(&table);
    return code;
}

json_t *cli_layers_pack(const struct cli_layers *layers, int layer) {
    double value[CLI_LAYER_NUMBERS];
    json_t *object = json_pack("{s:o}", "layer", layer < 0 ? json_null() : json_integer(layer));
    layers->read(layers->context, layer, value);
    for (int i = 0; i < layers->numbers; i++)
        json_object_set_new(object, layers->column[1 + i].key,
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
