/* moeperf show for clusters. */
#include "harness/cli/cluster.h"

#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cluster/cluster.h"
#include "reference/base/characters.h"

enum { SHARES_IN_LINE = 6 };
/* The tables of the two directions; the second one only where a file gives it. */
static const struct {
    const char *place, *heading;
} tables[] = {
    {"device.efficiency.share.", "share of the peak that a matrix product reaches"},
    {"device.efficiency.backward.", "the same of products that give gradients"},
};

static void pack_quantity(void *context, const char *place, const char *unit,
                          const struct mp_quantity *quantity) {
    json_t *value = quantity->word ? json_string(quantity->word) : json_real(quantity->value);
    json_array_append_new(context,
                          json_pack("{s:s, s:o, s:s, s:s, s:i}", "place", place, "value", value,
                                    "unit", unit, quantity->assumed ? "assumed" : "source",
                                    quantity->origin, "line", quantity->line));
}

static json_t *pack_numbers(const double number[], int count) {
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_real(number[i]));
    return list;
}

json_t *cli_pack_cluster(const char *name, const char *path, struct mp_error *error) {
    struct mp_cluster *cluster;
    if (mp_cluster_load(path, &cluster, error))
        return NULL;
    const struct mp_cluster_efficiency *table = &cluster->efficiency;
    json_t *quantities = json_array();
    mp_cluster_each(cluster, pack_quantity, quantities);
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "kind", "cluster", "name", name,
                  "title", cluster->description, "path", path, "device", cluster->device,
                  "quantities", quantities, "tokens", pack_numbers(table->tokens, table->rows),
                  "width", pack_numbers(table->width, table->columns));
    mp_cluster_destroy(cluster);
    if (!object)
        mp_fail(error, MP_ENOMEM, "%s: no memory to show the cluster", path);
    return object;
}

/* "12.5 GB/s", "5 us", "4": seconds get smaller units, everything else larger ones. */
static void format_value(const json_t *row, char *text, size_t size) {
    static const char larger[] = " kMGTPE";
    static const char *const smaller[] = {"s", "ms", "us", "ns"};
    const char *unit = json_string_value(json_object_get(row, "unit"));
    const json_t *value = json_object_get(row, "value");
    double number = json_number_value(value);
    int steps = 0;
    if (json_is_string(value)) {
        mp_clean_text(text, size, json_string_value(value));
    } else if (!*unit) {
        snprintf(text, size, "%.10g", number);
    } else if (!strcmp(unit, "s")) {
        for (; number > 0 && number < 0.9999999 && steps < 3; steps++)
            number *= 1000;
        snprintf(text, size, "%.6g %s", number, smaller[steps]);
    } else {
        for (; number >= 1000 && steps < 6; steps++)
            number /= 1000;
        snprintf(text, size, "%.6g %.*s%s", number, steps > 0, &larger[steps], unit);
    }
}

static void print_origin(const json_t *row, int indent) {
    char text[1024];
    const char *source = json_string_value(json_object_get(row, "source"));
    const char *assumed = json_string_value(json_object_get(row, "assumed"));
    snprintf(text, sizeof text, "%s%s", source ? "" : "assumed: ", source ? source : assumed);
    cli_print_filled(stdout, indent, text);
}

static bool is_of(const json_t *row, const char *table) {
    const char *place = json_string_value(json_object_get(row, "place"));
    return !strncmp(place, table, strlen(table));
}

static bool same_origin(const json_t *row, const json_t *other) {
    static const char *const keys[] = {"source", "assumed"};
    for (int i = 0; i < 2; i++) {
        const char *origin = json_string_value(json_object_get(row, keys[i]));
        const char *another = json_string_value(json_object_get(other, keys[i]));
        if (!origin != !another || (origin && strcmp(origin, another) != 0))
            return false;
    }
    return true;
}

/* The number of a table entry's origin among `origins`, in the order of first use. */
static int number_origin(json_t *origins, json_t *row) {
    size_t i;
    const json_t *origin;
    json_array_foreach(origins, i, origin) {
        if (same_origin(origin, row))
            return (int)i;
    }
    json_array_append(origins, row);
    return (int)i;
}

static void print_table_head(const json_t *object, const char *heading) {
    size_t i;
    json_t *width;
    printf("\n%s\n", heading);
    printf("  tokens of an expert by width");
    json_array_foreach(json_object_get(object, "width"), i, width) {
        bool ends_line = i % SHARES_IN_LINE == SHARES_IN_LINE - 1 ||
                         i + 1 == json_array_size(json_object_get(object, "width"));
        if (i % SHARES_IN_LINE == 0)
            printf("\n  %9s", "");
        printf(" %6g%s", json_number_value(width), ends_line ? "" : "   ");
    }
}

static void print_table_origins(const json_t *origins) {
    size_t i;
    json_t *row;
    json_array_foreach(origins, i, row) {
        if (i > 0)
            printf("  [%zu]\n", i);
        print_origin(row, 4);
    }
}

/* A table, if it is there; [n] behind a share refers to the origins below it. */
static void print_shares(const json_t *object, const char *table, const char *heading) {
    const json_t *rows = json_object_get(object, "quantities");
    const json_t *tokens = json_object_get(object, "tokens");
    size_t columns = json_array_size(json_object_get(object, "width"));
    size_t first = 0, count = columns * json_array_size(tokens);
    while (first < json_array_size(rows) && !is_of(json_array_get(rows, first), table))
        first++;
    if (first == json_array_size(rows))
        return;
    json_t *origins = json_array();
    print_table_head(object, heading);
    for (size_t i = 0; i < count; i++) {
        json_t *row = json_array_get(rows, first + i);
        int number = number_origin(origins, row);
        if (i % columns == 0)
            printf("\n  %9g", json_number_value(json_array_get(tokens, i / columns)));
        else if (i % columns % SHARES_IN_LINE == 0)
            printf("\n  %9s", "");
        printf(" %6.3g", json_number_value(json_object_get(row, "value")));
        if (number > 0)
            printf("[%d]", number);
        else if (i % columns % SHARES_IN_LINE < SHARES_IN_LINE - 1 && i % columns < columns - 1)
            printf("   ");
    }
    putchar('\n');
    print_table_origins(origins);
    json_decref(origins);
}

static void print_member(const char *before, const json_t *object, const char *key) {
    const json_t *member = json_object_get(object, key);
    fputs(before, stdout);
    cli_print_clean(stdout, json_string_value(member), json_string_length(member));
}

void cli_print_cluster(const json_t *object) {
    size_t i;
    json_t *row;
    char value[128];
    const char *part = "";
    print_member("", object, "name");
    print_member(": ", object, "title");
    print_member("\n\ndevice ", object, "device");
    putchar('\n');
    json_array_foreach(json_object_get(object, "quantities"), i, row) {
        const char *place = json_string_value(json_object_get(row, "place"));
        if (is_of(row, "device.efficiency."))
            continue;
        if (!strncmp(place, "levels.", 7) && strncmp(part, "levels.", 7) != 0)
            puts("\nlinks");
        part = place;
        format_value(row, value, sizeof value);
        printf("  %s: %s\n", place, value);
        print_origin(row, 4);
    }
    for (size_t table = 0; table < sizeof tables / sizeof *tables; table++)
        print_shares(object, tables[table].place, tables[table].heading);
}
