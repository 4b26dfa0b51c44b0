#include "harness/cli/predict.h"

#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/predict/exchanges.h"
#include "harness/suite/paths.h"
#include "results/report/html.h"
#include "results/report/query.h"
#include "results/report/table.h"

/* Rows: bytes from each rank to each other one.  Columns: nodes. */
static const struct {
    const char *label;
    double bytes;
} sizes[] = {{"1 KiB", 0x1p10},   {"4 KiB", 0x1p12}, {"16 KiB", 0x1p14}, {"64 KiB", 0x1p16},
             {"256 KiB", 0x1p18}, {"1 MiB", 0x1p20}, {"4 MiB", 0x1p22}};
static const char *const usual_nodes[] = {"2", "4", "8", "16"};
enum { SIZES = MP_LENGTH(sizes), NODES = MP_LENGTH(usual_nodes) };

static struct {
    const char *cluster, *nodes;
    struct mp_page_output page;
    struct cli_words set;
    struct cli_format format;
    bool exchanges;
} given;

struct comparison {
    const char *name; /* of the cluster */
    const char *nodes[NODES];
    int columns, kinds;
    int ranks_per_node;
    bool has_costs; /* messages between nodes hold their ports beside their bytes */
    double seconds[MP_EXCHANGE_KINDS][SIZES][NODES];
};

static const struct cli_flag known_flags[] = {
    {"--exchanges", CLI_SWITCH, &given.exchanges, NULL, "compares exchanges by themselves"},
    {"--cluster", CLI_VALUE, &given.cluster, "NAME",
     "a ready-made cluster (moeperf list clusters) or a file"},
    {"--nodes", CLI_VALUE, &given.nodes, "N", "of so many nodes alone; else 2 to 16"},
    {"--set", CLI_REPEATED, &given.set, "KEY=VALUE",
     "sets a number of the cluster: levels.NAME.bandwidth\n"
     "(B/s), levels.NAME.latency or levels.NAME.message-cost\n"
     "(s); may be repeated"},
    {"--html", CLI_VALUE, &given.page.html, "FILE", "draws heat maps, too"},
    {"--figures", CLI_VALUE, &given.page.figures, "FOLDER", CLI_FIGURES_HELP},
    CLI_FORMAT_FLAGS(&given.format),
    {0},
};
const struct cli_usage cli_exchanges_usage = {
    "moeperf predict --exchanges --cluster NAME [options]",
    "Says where which exchange wins: every rank has so many bytes for every other one, and\n"
    "they travel by each of the exchanges that a job may ask for (moeperf list exchanges),\n"
    "on so many nodes of the cluster.  What fewer and larger messages save is what the\n"
    "cluster says of a message's cost beside its bytes; most say nothing.",
    known_flags,
    0,
    0,
    "  moeperf predict --exchanges --cluster tutel --set levels.cluster.message-cost=4e-6\n"
    "  moeperf predict --exchanges --cluster hetumoe --nodes 8 --html exchanges.html\n"};

/* ---- predicting ---- */

/* Those that a job may ask for are the first. */
static int count_kinds(void) {
    int kinds = 1;
    for (const char *at = mp_exchange_choices; (at = strchr(at, ' ')); at++)
        kinds++;
    return kinds;
}

static int compare_column(const char *path, int column, struct comparison *comparison,
                          struct mp_error *error) {
    MP_AUTO(cluster) struct mp_cluster *cluster = NULL;
    char nodes[64];
    MP_TRY(mp_cluster_load(path, &cluster, error));
    snprintf(nodes, sizeof nodes, "nodes=%.40s", comparison->nodes[column]);
    MP_TRY(mp_cluster_set(cluster, nodes, error));
    for (int i = 0; i < given.set.count; i++)
        MP_TRY(mp_cluster_set(cluster, given.set.word[i], error));
    comparison->ranks_per_node = (int)cluster->ranks_per_node.value;
    comparison->has_costs = cluster->level[cluster->levels - 1].message_cost.value > 0;
    for (int kind = 0; kind < comparison->kinds; kind++)
        for (int row = 0; row < SIZES; row++)
            MP_TRY(mp_exchange_seconds(cluster, (enum mp_exchange_kind)kind, sizes[row].bytes,
                                       &comparison->seconds[kind][row][column], error));
    return MP_OK;
}

/* The fastest; of equal ones the first. */
static int winner(const struct comparison *comparison, int row, int column) {
    int best = 0;
    for (int kind = 1; kind < comparison->kinds; kind++)
        if (comparison->seconds[kind][row][column] < comparison->seconds[best][row][column])
            best = kind;
    return best;
}

/* ---- printing ---- */

static double times_as_fast(const struct comparison *comparison, int kind, int row, int column) {
    return comparison->seconds[MP_EXCHANGE_FLAT][row][column] /
           comparison->seconds[kind][row][column];
}

static void print_heading(const struct comparison *comparison, FILE *out) {
    table_paragraph(out,
                    "Predicted, not measured: %s, nodes of %d ranks; every rank has so many bytes "
                    "for every other one.",
                    comparison->name, comparison->ranks_per_node);
    if (!comparison->has_costs)
        table_paragraph(out,
                        "Messages between nodes cost nothing but their bytes and one latency a "
                        "round, so fewer and larger ones save nothing: the cluster does not say "
                        "what they cost (--set levels.cluster.message-cost=SECONDS).");
    for (int kind = 0; kind < comparison->kinds; kind++)
        if (mp_exchange_of((enum mp_exchange_kind)kind)->deduplicates)
            table_paragraph(out,
                            "%s: as if no token had two experts in a node. What it saves where "
                            "they have comes on top (moeperf predict --vary exchange=...).",
                            mp_exchange_name((enum mp_exchange_kind)kind));
}

/* Who wins, and how many times as fast as flat; or of one exchange, that. */
static int print_table(const struct comparison *comparison, int kind, enum mp_report_format format,
                       struct mp_error *error) {
    struct table_column columns[NODES + 1] = {{"message", .kind = TABLE_RIGHT}};
    char header[NODES][64], title[96];
    for (int c = 0; c < comparison->columns; c++) {
        snprintf(header[c], sizeof header[c], "%.40s nodes", comparison->nodes[c]);
        columns[c + 1] = (struct table_column){header[c], .kind = TABLE_RIGHT};
    }
    MP_AUTO(table) struct table table = table_of(columns, comparison->columns + 1);
    for (int row = 0; row < SIZES; row++) {
        MP_TRY(table_add(&table, NULL, error));
        table_set(&table, 0, "%s", sizes[row].label);
        for (int c = 0; c < comparison->columns; c++) {
            int best = winner(comparison, row, c);
            if (kind >= 0)
                table_set_number(&table, c + 1, times_as_fast(comparison, kind, row, c), 2);
            else if (best == MP_EXCHANGE_FLAT)
                table_set(&table, c + 1, "%s", mp_exchange_name(MP_EXCHANGE_FLAT));
            else
                table_set(&table, c + 1, "%s %.2f", mp_exchange_name((enum mp_exchange_kind)best),
                          times_as_fast(comparison, best, row, c));
        }
    }
    if (kind < 0)
        snprintf(title, sizeof title, "the fastest, and how many times as fast as flat");
    else
        snprintf(title, sizeof title, "%s, times as fast as flat",
                 mp_exchange_name((enum mp_exchange_kind)kind));
    table_write(&table, format, title, stdout);
    return MP_OK;
}

static int print_all(const struct comparison *comparison, enum mp_report_format format,
                     struct mp_error *error) {
    if (format == MP_REPORT_TEXT)
        print_heading(comparison, stdout);
    for (int kind = -1; kind < comparison->kinds; kind += 1 + (kind < 0)) {
        if (kind >= 0 || format == MP_REPORT_TEXT)
            putchar('\n');
        MP_TRY(print_table(comparison, kind, format, error));
    }
    return check_printed(stdout, error);
}

/* A heat map of each exchange beside flat; above them who wins where. */
static int write_html(const struct comparison *comparison, const struct mp_page_output *output,
                      struct mp_error *error) {
    struct mp_grid grid[MP_EXCHANGE_KINDS];
    int count = 0;
    MP_AUTO(text) char *about = NULL;
    size_t size;
    FILE *memory = open_memstream(&about, &size);
    if (!memory)
        return mp_fail(error, MP_ENOMEM, "no memory for the page");
    print_heading(comparison, memory);
    for (int row = 0; row < SIZES; row++) {
        fprintf(memory, "%s:", sizes[row].label);
        for (int c = 0; c < comparison->columns; c++) {
            int best = winner(comparison, row, c);
            fprintf(memory, "%s %s on %s nodes", c ? "," : "",
                    mp_exchange_name((enum mp_exchange_kind)best), comparison->nodes[c]);
        }
        fputc('\n', memory);
    }
    for (int kind = MP_EXCHANGE_FLAT + 1; kind < comparison->kinds; kind++) {
        grid[count] = (struct mp_grid){.name = mp_exchange_name((enum mp_exchange_kind)kind),
                                       .reference = "exchange flat",
                                       .row = "message",
                                       .column = "nodes",
                                       .rows = SIZES,
                                       .columns = comparison->columns};
        for (int row = 0; row < SIZES; row++)
            for (int c = 0; c < comparison->columns; c++) {
                grid[count].row_label[row] = sizes[row].label;
                grid[count].column_label[c] = comparison->nodes[c];
                grid[count].ratio[row][c] = times_as_fast(comparison, kind, row, c);
            }
        count++;
    }
    if (fclose(memory))
        return mp_fail(error, MP_ENOMEM, "no memory for the page");
    const struct mp_grids page = {
        .grid = grid, .count = count, .title = "Where which exchange wins", .about = about};
    return mp_grid_html(&page, output, error);
}

static int print_json(const struct comparison *comparison, struct mp_error *error) {
    json_t *cells = json_array();
    for (int row = 0; row < SIZES; row++)
        for (int c = 0; c < comparison->columns; c++) {
            json_t *seconds = json_object();
            for (int kind = 0; kind < comparison->kinds; kind++)
                json_object_set_new(seconds, mp_exchange_name((enum mp_exchange_kind)kind),
                                    number_value(comparison->seconds[kind][row][c]));
            json_array_append_new(
                cells,
                json_pack("{s:f, s:i, s:s, s:o}", "bytes", sizes[row].bytes, "nodes",
                          atoi(comparison->nodes[c]), "fastest",
                          mp_exchange_name((enum mp_exchange_kind)winner(comparison, row, c)),
                          "seconds", seconds));
        }
    return cli_print_json(json_pack("{s:o, s:i, s:o}", "cluster", text_value(comparison->name),
                                    "ranks_per_node", comparison->ranks_per_node, "points", cells),
                          error);
}

int cli_exchanges(struct mp_error *error) {
    static struct comparison comparison;
    char path[MP_PATH_SIZE];
    if (!given.cluster)
        return mp_fail(error, MP_EINVAL, "--cluster: not given; moeperf list clusters names some");
    MP_TRY(mp_path_file(MP_CLUSTERS, given.cluster, path, error));
    comparison.name = given.cluster;
    comparison.kinds = count_kinds();
    comparison.columns = given.nodes ? 1 : NODES;
    for (int column = 0; column < comparison.columns; column++) {
        comparison.nodes[column] = given.nodes ? given.nodes : usual_nodes[column];
        MP_TRY(compare_column(path, column, &comparison, error));
    }
    if (given.page.html || given.page.figures)
        MP_TRY(write_html(&comparison, &given.page, error));
    return given.format.kind == MP_REPORT_JSON ? print_json(&comparison, error)
                                               : print_all(&comparison, given.format.kind, error);
}
