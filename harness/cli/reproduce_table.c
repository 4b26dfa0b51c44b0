/* What moeperf reproduce prints: see reproduce.h. */
#include <math.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/reproduce.h"
#include "reference/base/characters.h"
#include "results/report/query.h"
#include "results/report/table.h"

/* Beside a published number: how we know it; stated ones have no mark. */
static const char *const certainty_mark[MP_PAPER_CERTAINTIES] = {"", "c", "d", "2", "m"};

void cli_format_figure(enum mp_paper_unit unit, double value, char text[32]) {
    if (isnan(value))
        snprintf(text, 32, "-");
    else if (unit == MP_PAPER_CHANGE)
        snprintf(text, 32, "%+.1f %%", 100 * value);
    else if (unit == MP_PAPER_SHARE)
        snprintf(text, 32, "%.1f %%", 100 * value);
    else if (unit == MP_PAPER_SPEED_UP || unit == MP_PAPER_RATIO)
        snprintf(text, 32, "%.2f", value);
    else if (unit == MP_PAPER_SECONDS)
        snprintf(text, 32, "%.2f s", value);
    else if (unit == MP_PAPER_MS)
        snprintf(text, 32, "%.0f ms", value);
    else
        snprintf(text, 32, "%.4g %s", value, mp_paper_unit_name(unit));
}

void cli_format_published(const struct mp_paper_row *row, char text[80]) {
    char low[32], high[32];
    const char *mark = certainty_mark[row->certainty];
    cli_format_figure(row->unit, row->low, low);
    cli_format_figure(row->unit, row->high, high);
    if (isinf(row->low))
        snprintf(text, 80, "up to %s", high);
    else if (row->low < row->high)
        snprintf(text, 80, "%s .. %s", low, high);
    else
        snprintf(text, 80, "%s", high);
    if (*mark)
        mp_text_add(text, 80, " ", "(%s)", mark);
}

/* Ours over the published number, as factors also where both are changes; the nearer end of a
 * range, 1 inside it; of "up to" its one end. */
static double relation(const struct mp_reproduced *line) {
    const struct mp_paper_row *row = &line->row->published;
    double offset = row->unit == MP_PAPER_CHANGE ? 1 : 0;
    double value = line->value + offset, low = row->low + offset, high = row->high + offset;
    if (isnan(line->value) || (isfinite(row->low) && row->low < row->high &&
                               line->value >= row->low && line->value <= row->high))
        return isnan(line->value) ? NAN : 1;
    return value > high || isinf(low) ? value / high : value / low;
}

static const char *verdict(const struct mp_reproduced *line) {
    if (isnan(line->value))
        return line->is_refused ? "refused" : "-";
    return line->is_inside ? "inside" : "outside";
}

static void show_published(const void *row, char text[TABLE_CELL]) {
    cli_format_published(&((const struct cli_line *)row)->line->row->published, text);
}

static void show_ours(const void *row, char text[TABLE_CELL]) {
    const struct mp_reproduced *line = ((const struct cli_line *)row)->line;
    cli_format_figure(line->row->published.unit, line->value, text);
    if (line->out_of_memory)
        strcat(text, " *");
}

static void show_prior(const void *row, char text[TABLE_CELL]) {
    const struct cli_line *own = row;
    cli_format_interval(own->line->row->published.unit, own->sampled, text);
}

#define LINE(member) offsetof(struct cli_line, member)
const struct table_column cli_line_columns[CLI_INFERRED_COLUMNS] = {
    {"published row", TABLE_LEFT, .at = LINE(first)},
    {"", TABLE_LEFT, NULL, "of", .at = LINE(label)},
    {"published", TABLE_RIGHT, .show = show_published},
    {"ours\n(predicted)", TABLE_RIGHT, .show = show_ours},
    {"ours /\npublished", TABLE_NUMBER, .at = LINE(relation), .decimals = 2},
    {"", TABLE_LEFT, .at = LINE(verdict)},
    {.key = "row", .at = LINE(id)},
    {.key = "what", .at = LINE(what)},
    {.key = "unit", .at = LINE(unit)},
    {.key = "certainty", .at = LINE(certainty)},
    {NULL, TABLE_NUMBER, NULL, "low", .at = LINE(low)},
    {NULL, TABLE_NUMBER, NULL, "high", .at = LINE(high)},
    {NULL, TABLE_NUMBER, NULL, "ours", .at = LINE(value)},
    {NULL, TABLE_FLAG, NULL, "inside", .at = LINE(is_inside)},
    {NULL, TABLE_FLAG, NULL, "out_of_memory", .at = LINE(out_of_memory)},
    {.key = "missing", .at = LINE(missing)},
    {"use", TABLE_LEFT, NULL, "use", .at = LINE(use)},
    {"prior", TABLE_RIGHT, .optional = 1, .show = show_prior}, /* it is on the page, too */
    {NULL, TABLE_NUMBER, NULL, "all_sets_low", .at = LINE(sampled.low)},
    {NULL, TABLE_NUMBER, NULL, "all_sets_high", .at = LINE(sampled.high)},
    {NULL, TABLE_NUMBER, NULL, "nearly_as_good_low", .at = LINE(near.low)},
    {NULL, TABLE_NUMBER, NULL, "nearly_as_good_high", .at = LINE(near.high)},
};

struct cli_line cli_line_of(const struct mp_reproduced lines[], int i) {
    const struct mp_reproduced *line = &lines[i];
    const struct mp_paper_row *row = &line->row->published;
    return (struct cli_line){
        .line = line,
        .first = i == 0 || line->row != lines[i - 1].row ? row->id : "",
        .id = row->id,
        .label = line->label,
        .verdict = verdict(line),
        .what = row->what,
        .unit = mp_paper_unit_name(row->unit),
        .certainty = mp_paper_certainty_name(row->certainty),
        .missing = isnan(line->value) && *line->missing ? line->missing : NULL,
        .relation = relation(line),
        .low = row->low,
        .high = row->high,
        .value = line->value,
        .is_inside = line->is_inside,
        .out_of_memory = line->out_of_memory,
    };
}

/* Sentences under the table: what each row is, what the marks mean. */
static void explain_rows(const struct mp_reproduction *all) {
    puts("");
    for (int i = 0; i < all->rows; i++) {
        const struct mp_paper_row *row = &all->row[i].published;
        if (i > 0 && !strcmp(row->id, all->row[i - 1].published.id))
            continue;
        table_paragraph(stdout, "%s: %s; %s.%s%s", row->id, row->what, row->setting,
                        row->note ? " Note: " : "", row->note ? row->note : "");
    }
}

void cli_explain_marks(const struct mp_reproduced line[], int lines, char text[CLI_MARKS]) {
    bool marks[MP_PAPER_CERTAINTIES] = {false}, out_of_memory = false;
    for (int i = 0; i < lines; i++) {
        marks[line[i].row->published.certainty] = true;
        out_of_memory = out_of_memory || line[i].out_of_memory;
    }
    *text = '\0';
    for (int i = 1; i < MP_PAPER_CERTAINTIES; i++)
        if (marks[i])
            mp_text_add(text, CLI_MARKS, "; ", "(%s): %s, not stated in the paper",
                        certainty_mark[i], mp_paper_certainty_name((enum mp_paper_certainty)i));
    if (out_of_memory)
        mp_text_add(text, CLI_MARKS, "; ",
                    "*: by prediction one of the jobs does not fit into memory");
}

static void explain_counts(const struct mp_reproduction *all) {
    int inside = 0, missing = 0;
    char marks[CLI_MARKS];
    for (int i = 0; i < all->lines; i++) {
        const struct mp_reproduced *line = &all->line[i];
        missing += isnan(line->value);
        inside += line->is_inside;
    }
    puts("");
    if (missing)
        table_paragraph(stdout, "%d inside, %d outside, %d without a number of ours.", inside,
                        all->lines - inside - missing, missing);
    else
        table_paragraph(stdout, "%d inside, %d outside.", inside, all->lines - inside);
    table_paragraph(
        stdout, "Inside: within the published range; a single number, also of \"up to\", is met "
                "within 10 %%, changes and shares within 5 points.");
    cli_explain_marks(all->line, all->lines, marks);
    if (*marks)
        table_paragraph(stdout, "%s.", marks);
}

static void print_assumption(void *context, const char *text) {
    (void)context;
    table_paragraph(stdout, "- %s", text);
}

/* What the prediction itself assumes, of the first job on each machine. */
static int print_machine_assumptions(const struct mp_reproduction *all,
                                     const struct mp_reproduce_settings *settings,
                                     struct mp_error *error) {
    int code = MP_OK;
    for (int machine = 0; !code && machine < all->machines.count; machine++) {
        struct mp_predict_job job;
        struct mp_cluster *cluster = NULL;
        const int place[3] = {machine, 0, 0};
        MP_TRY(mp_reproduction_job(all, settings, place, &job, &cluster, error));
        printf("\non %s\n", all->machines.part[machine].name);
        code = mp_predict_job_assumptions(&job, cluster, print_assumption, NULL, error);
        mp_cluster_destroy(cluster);
        mp_predict_job_destroy(&job);
    }
    return code;
}

/* What is inferred, and by which command; without one it stands in the middle of its range. */
static void print_values(const struct mp_reproduction *all) {
    if (!all->unknowns)
        return;
    puts("");
    table_paragraph(stdout, "%s:",
                    all->inferred_by ? "inferred, the same for every row"
                                     : "not inferred yet, in the middle of its range");
    for (int u = 0; u < all->unknowns; u++)
        table_paragraph(stdout, "- %s: %s (%s)", all->unknown[u].key, all->unknown[u].value,
                        all->unknown[u].why);
    table_paragraph(stdout, "%s does that again, and says which rows hold together under no set:",
                    all->inferred_by ? "This" : "Inferring");
    char command[MP_REPRODUCE_LABEL * 2];
    snprintf(command, sizeof command, "moeperf reproduce %.40s --infer", all->name);
    table_command(stdout, all->inferred_by ? all->inferred_by : command);
}

static void print_assumptions(const struct mp_reproduction *all) {
    puts("\nassumed, the same for every row:");
    for (int i = 0; i < all->assumptions; i++)
        table_paragraph(stdout, "- %s (%s)", all->assumption[i].what, all->assumption[i].because);
    for (int i = 0; all->largest_batch && i < all->machines.count * all->models.count; i++)
        if (all->batch[i])
            table_paragraph(stdout, "- %s, %s: %d sequence%s per rank, the most that fit%s",
                            all->machines.part[i / all->models.count].name,
                            all->models.part[i % all->models.count].name, all->batch[i],
                            all->batch[i] == 1 ? "" : "s",
                            all->batch[i] == MP_REPRODUCE_BATCH ? " or more" : "");
    print_values(all);
    puts("\nnot reproduced:");
    for (int i = 0; i < all->left_outs; i++)
        table_paragraph(stdout, "- %s: %s", all->left_out[i].what, all->left_out[i].because);
    if (!all->left_outs)
        puts("- (nothing is left out)");
}

/* ---- details ---- */

struct detail {
    const char *name;
    struct mp_reproduce_cell cell; /* memory in GB */
};
#define FIGURE(which) offsetof(struct detail, cell.figure[which])
/* What is left out where names are long is optional. */
static const struct table_column detail_columns[] = {
    {"job", TABLE_LEFT, .at = offsetof(struct detail, name)},
    {"ms per\niteration", TABLE_MS, .at = FIGURE(MP_FIGURE_SECONDS), .decimals = 1},
    {"MoE", TABLE_MS, .at = FIGURE(MP_FIGURE_MOE), .decimals = 1, .optional = 3},
    {"ex-\nperts", TABLE_MS, .at = FIGURE(MP_FIGURE_EXPERT), .decimals = 1},
    {"ex-\nchange", TABLE_MS, .at = FIGURE(MP_FIGURE_EXCHANGE), .decimals = 1},
    {"atten-\ntion", TABLE_MS, .at = FIGURE(MP_FIGURE_ATTENTION), .decimals = 1},
    {"exposed", TABLE_MS, .at = FIGURE(MP_FIGURE_EXPOSED), .decimals = 1, .optional = 2},
    {"copies\ntravel", TABLE_MS, .at = FIGURE(MP_FIGURE_TRANSFER), .decimals = 1},
    {"moves", TABLE_MS, .at = FIGURE(MP_FIGURE_MOVE), .decimals = 1, .optional = 4},
    {"max /\nmean", TABLE_NUMBER, .at = FIGURE(MP_FIGURE_IMBALANCE), .decimals = 2},
    {"memory", TABLE_NUMBER, "GB", .at = FIGURE(MP_FIGURE_MEMORY), .decimals = 2},
    {"bound /\ntime", TABLE_NUMBER, "%", .at = offsetof(struct detail, cell.of_bound),
     .decimals = 1},
    {"refused", TABLE_REMARK, .at = offsetof(struct detail, cell.refusal)},
};

static int fill_details(const struct mp_reproduction *all, struct table *table,
                        struct mp_error *error) {
    int pairs = all->models.count * all->jobs.count, code = MP_OK;
    char name[3 * MP_REPRODUCE_LABEL];
    *table = table_of(detail_columns, MP_LENGTH(detail_columns));
    table->drops_empty = table->lines_first = true;
    for (int i = 0; !code && i < all->machines.count * pairs; i++) {
        struct detail row = {name, all->cell[i]};
        if (!row.cell.is_done && !row.cell.refusal)
            continue;
        row.cell.figure[MP_FIGURE_MEMORY] *= 1e-9;
        snprintf(name, sizeof name, "%s, %s, %s", all->machines.part[i / pairs].name,
                 all->models.part[i % pairs / all->jobs.count].name,
                 all->jobs.part[i % all->jobs.count].name);
        code = table_fill(table, &row, 1, sizeof row, error);
    }
    return code;
}

void cli_write_lines(const char *paper, const struct mp_reproduced line[], int lines,
                     const struct table *table, enum mp_report_format format) {
    char marks[CLI_MARKS], title[CLI_MARKS + 80];
    cli_explain_marks(line, lines, marks);
    if (format == MP_REPORT_CSV) /* whose title is a column */
        *marks = '\0';
    snprintf(title, sizeof title, "%.70s%s%s", paper, *marks ? "; " : "", marks);
    table_write(table, format, title, stdout);
}

/* The tables alone. */
static int write_tables(const struct mp_reproduction *all, const struct table *lines,
                        enum mp_report_format format, bool details, struct mp_error *error) {
    MP_AUTO(table) struct table table = {0};
    cli_write_lines(all->name, all->line, all->lines, lines, format);
    if (details) {
        MP_TRY(fill_details(all, &table, error));
        putchar('\n');
        table_write(&table, format, "jobs, times in ms", stdout);
    }
    return check_printed(stdout, error);
}

/* ---- JSON ---- */

static json_t *pack_cells(const struct mp_reproduction *all) {
    json_t *cells = json_array();
    int pairs = all->models.count * all->jobs.count;
    for (int i = 0; i < all->machines.count * pairs; i++) {
        const struct mp_reproduce_cell *cell = &all->cell[i];
        if (!cell->is_done && !cell->refusal)
            continue;
        json_t *figures = json_object();
        for (int j = 0; j < MP_FIGURES && cell->is_done; j++)
            json_object_set_new(figures, mp_reproduce_figure_name((enum mp_reproduce_figure)j),
                                number_value(cell->figure[j]));
        json_array_append_new(cells,
                              json_pack("{ss ss ss so sb so so}", "machine",
                                        all->machines.part[i / pairs].name, "model",
                                        all->models.part[i % pairs / all->jobs.count].name, "job",
                                        all->jobs.part[i % all->jobs.count].name, "refused",
                                        cell->refusal ? json_string(cell->refusal) : json_null(),
                                        "out_of_memory", cell->out_of_memory, "of_bound",
                                        cell->is_done ? number_value(cell->of_bound) : json_null(),
                                        "figures", figures));
    }
    return cells;
}

static json_t *pack_reasons(const struct mp_reproduce_reason reason[], int count,
                            const char *what) {
    json_t *pairs = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(
            pairs, json_pack("{ss ss}", what, reason[i].what, "because", reason[i].because));
    return pairs;
}

static json_t *pack_values(const struct mp_reproduction *all) {
    json_t *values = json_object();
    for (int u = 0; u < all->unknowns; u++)
        json_object_set_new(values, all->unknown[u].key, json_string(all->unknown[u].value));
    return values;
}

static int print_json(const struct mp_reproduction *all, const struct table *lines,
                      const struct mp_reproduce_settings *settings, struct mp_error *error) {
    json_t *loads = json_array();
    for (int i = 0; !settings->loads && i < all->windows; i++)
        json_array_append_new(loads, json_string(all->window[i].loads));
    if (settings->loads)
        json_array_append_new(loads, json_string(settings->loads));
    return cli_print_json(
        json_pack("{ss so so so so so so}", "paper", all->name, "lines", table_json(lines), "jobs",
                  pack_cells(all), "loads", loads, "assumptions",
                  pack_reasons(all->assumption, all->assumptions, "what"), "left_out",
                  pack_reasons(all->left_out, all->left_outs, "row"), "unknowns", pack_values(all)),
        error);
}

/* ---- any format ---- */

static int print_text(const struct mp_reproduction *all, const struct table *lines,
                      const struct mp_reproduce_settings *settings, bool details,
                      struct mp_error *error) {
    table_paragraph(stdout, "%s: %s", all->name, all->description);
    table_paragraph(stdout, "%s, %s; %s", all->published->paper, all->published->source,
                    all->published->setting);
    puts("");
    table_print(lines, stdout);
    explain_counts(all);
    char name[2 * MP_REPRODUCE_LABEL];
    for (int i = 0; i < all->lines; i++) {
        mp_reproduced_name(&all->line[i], name);
        if (isnan(all->line[i].value))
            table_paragraph(stdout, "%s: %s.", name, all->line[i].missing);
    }
    explain_rows(all);
    print_assumptions(all);
    if (!details) {
        putchar('\n');
        table_paragraph(stdout,
                        "--details adds each job's times and memory and what its cluster assumes.");
        return MP_OK;
    }
    MP_AUTO(table) struct table table = {0};
    MP_TRY(fill_details(all, &table, error));
    putchar('\n');
    table_paragraph(stdout, "times in ms, means over ranks and iterations; memory of the fullest "
                            "rank; bound: no system that drops nothing, keeps the gate and the "
                            "exchange and leaves experts whole takes less");
    table_print(&table, stdout);
    return print_machine_assumptions(all, settings, error);
}

int cli_print_reproduction(const struct mp_reproduction *all,
                           const struct mp_reproduce_settings *settings,
                           enum mp_report_format format, bool details, struct mp_error *error) {
    MP_AUTO(table) struct table lines = table_of(cli_line_columns, CLI_LINE_COLUMNS);
    lines.drops_empty = true;
    for (int i = 0; i < all->lines; i++) {
        const struct cli_line line = cli_line_of(all->line, i);
        MP_TRY(table_fill(&lines, &line, 1, sizeof line, error));
    }
    return format == MP_REPORT_JSON   ? print_json(all, &lines, settings, error)
           : format == MP_REPORT_TEXT ? print_text(all, &lines, settings, details, error)
                                      : write_tables(all, &lines, format, details, error);
}

/* ---- published rows alone ---- */

struct published {
    struct mp_paper_row row;
    const char *figure, *is_reproduced;
};

int cli_print_published(const struct mp_reproduction *all, enum mp_report_format format,
                        struct mp_error *error) {
#define AT(member) offsetof(struct published, member)
    static const struct table_column columns[] = {
        {"row", TABLE_LEFT, NULL, "row", .at = AT(row.id)},
        {"what", TABLE_LONG, NULL, "what", .at = AT(row.what)},
        {"setting", TABLE_LONG, NULL, "setting", .at = AT(row.setting)},
        {"published", TABLE_RIGHT, NULL, "published", .at = AT(figure)},
        {"repro-\nduced", TABLE_LEFT, NULL, "reproduced", .at = AT(is_reproduced)},
    };
    char figure[80];
    struct published row = {.figure = figure};
    MP_AUTO(table) struct table table = table_of(columns, MP_LENGTH(columns));
    for (int i = 0; i < all->published->rows; i++) {
        row.row = all->published->row[i];
        row.is_reproduced = "no";
        for (int j = 0; j < all->rows; j++)
            if (!strcmp(all->row[j].id, row.row.id))
                row.is_reproduced = "yes";
        cli_format_published(&row.row, figure);
        MP_TRY(table_fill(&table, &row, 1, sizeof row, error));
    }
    if (format == MP_REPORT_JSON)
        return cli_print_json(table_json(&table), error);
    table_write(&table, format, format == MP_REPORT_TEXT ? "" : all->name, stdout);
    return MP_OK;
}
