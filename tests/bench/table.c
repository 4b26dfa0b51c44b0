#include <math.h>
#include <string.h>

#include "tests/bench/bench.h"

enum { CELL = 64 };

/* One value as text; longer strings are cut in tables, never in the JSON. */
static const char *cell_text(const json_t *value, char text[CELL]) {
    double real = json_real_value(value);
    double size = fabs(real);
    switch (json_typeof(value)) {
    case JSON_STRING:
        snprintf(text, CELL, "%s", json_string_value(value));
        break;
    case JSON_INTEGER:
        snprintf(text, CELL, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(text, CELL, size >= 1e12 ? "%.4g" : size >= 1000 ? "%.0f" : "%.4g", real);
        break;
    case JSON_TRUE:
        return "yes";
    case JSON_FALSE:
        return "no";
    default:
        return "-";
    }
    return text;
}

static bool is_table(const json_t *value) {
    return json_is_array(value) && json_is_object(json_array_get(value, 0));
}

static void print_columns(FILE *out, const json_t *rows) {
    const char *column;
    json_t *ignored;
    json_t *first = json_array_get(rows, 0);
    json_object_foreach(first, column, ignored) {
        (void)ignored;
        fprintf(out, "  %16s", column);
    }
    fprintf(out, "\n");
    for (size_t r = 0; r < json_array_size(rows); r++) {
        const json_t *row = json_array_get(rows, r);
        json_object_foreach(first, column, ignored) {
            char text[CELL];
            const json_t *value = json_object_get(row, column);
            int width = strlen(column) > 16 ? (int)strlen(column) : 16;
            fprintf(out, "  %*s", width, value ? cell_text(value, text) : "-");
        }
        fprintf(out, "\n");
    }
}

static void print_line(FILE *out, const char *name, const json_t *value, int width) {
    char text[CELL];
    fprintf(out, "  %-*s ", width, name);
    if (!json_is_array(value))
        fprintf(out, " %s", cell_text(value, text));
    for (size_t i = 0; i < json_array_size(value); i++)
        fprintf(out, " %s", cell_text(json_array_get(value, i), text));
    fprintf(out, "\n");
}

void mp_bench_print(FILE *out, const char *title, const json_t *result) {
    const char *name;
    json_t *value;
    int width = 0;
    fprintf(out, "%s\n", title);
    json_object_foreach((json_t *)result, name, value) {
        if ((int)strlen(name) > width && !json_is_object(value) && !is_table(value))
            width = (int)strlen(name);
    }
    json_object_foreach((json_t *)result, name, value) {
        if (!json_is_object(value) && !is_table(value))
            print_line(out, name, value, width);
    }
    json_object_foreach((json_t *)result, name, value) {
        if (is_table(value)) {
            fprintf(out, "%s\n", name);
            print_columns(out, value);
        } else if (json_is_object(value)) {
            mp_bench_print(out, name, value);
        }
    }
}
