/* What moeperf reproduce --infer prints and draws: see reproduce.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/reproduce.h"
#include "reference/base/characters.h"
#include "results/report/html.h"
#include "results/report/query.h"
#include "results/report/table.h"

static const char *const uses[] = {"fitted", "held out", "input"};

void cli_format_interval(enum mp_paper_unit unit, struct mp_infer_interval interval,
                         char text[80]) {
    char low[32], high[32];
    cli_format_figure(unit, interval.low, low);
    cli_format_figure(unit, interval.high, high);
    if (isnan(interval.low))
        snprintf(text, 80, "-");
    else /* the unit once */
        snprintf(text, 80, "%.*s .. %s", (int)strcspn(low, " "), low, high);
}

/* Values of an unknown over the sets near the best: its interval, or its words. */
static void format_unknown(const struct mp_inference *all, int unknown, char text[160]) {
    const struct mp_reproduce_unknown *one = &all->reproduction->unknown[unknown];
    struct mp_infer_interval interval = mp_infer_unknown(all, unknown);
    char low[MP_REPRODUCE_VALUE], high[MP_REPRODUCE_VALUE];
    *text = '\0';
    mp_reproduction_value(one, interval.low, low);
    mp_reproduction_value(one, interval.high, high);
    if (!one->choices)
        snprintf(text, 160, "%s .. %s", low, high);
    for (int c = 0; c < one->choices; c++) {
        bool is_there = false;
        for (int i = 0; i < all->sets; i++)
            is_there = is_there || (mp_infer_near(all, i) &&
                                    !strcmp(all->set[i].value[unknown], one->choice[c]));
        if (is_there)
            mp_text_add(text, 160, ", ", "%s", one->choice[c]);
    }
}

static void format_range(const struct mp_reproduce_unknown *unknown, char text[160]) {
    *text = '\0';
    if (!unknown->choices)
        snprintf(text, 160, "%.3g .. %.3g", unknown->from, unknown->to);
    for (int c = 0; c < unknown->choices; c++)
        mp_text_add(text, 160, ", ", "%s", unknown->choice[c]);
}

static int fill_rows(const struct mp_inference *all, struct table *table, struct mp_error *error) {
    *table = table_of(cli_line_columns, CLI_INFERRED_COLUMNS);
    table->drops_empty = true;
    for (int i = 0; i < all->lines; i++) {
        struct cli_line row = cli_line_of(all->line, i);
        row.use = uses[row.line->row->use];
        row.sampled = mp_infer_prior(all, i);
        row.near = mp_infer_line(all, i);
        MP_TRY(table_fill(table, &row, 1, sizeof row, error));
    }
    return MP_OK;
}

struct unknown {
    const char *key, *why, *best;
    char range[160], near[160];
};

static int fill_unknowns(const struct mp_inference *all, struct table *table,
                         struct mp_error *error) {
#define UNKNOWN(member) offsetof(struct unknown, member)
    static const struct table_column columns[] = {
        {"unknown", TABLE_LEFT, NULL, "key", .at = UNKNOWN(key)},
        {"range", TABLE_ARRAY, NULL, "range", .at = UNKNOWN(range)},
        {"best", TABLE_LEFT, NULL, "best", .at = UNKNOWN(best)},
        {"nearly as good", TABLE_ARRAY, NULL, "nearly_as_good", .at = UNKNOWN(near)},
        {.key = "why", .at = UNKNOWN(why)},
    };
    *table = table_of(columns, MP_LENGTH(columns));
    for (int u = 0; u < all->reproduction->unknowns; u++) {
        const struct mp_reproduce_unknown *unknown = &all->reproduction->unknown[u];
        struct unknown row = {unknown->key, unknown->why, all->set[all->best].value[u], "", ""};
        format_range(unknown, row.range);
        format_unknown(all, u, row.near);
        MP_TRY(table_fill(table, &row, 1, sizeof row, error));
    }
    return MP_OK;
}

static void count_near(const struct mp_inference *all, int *near, int *refused) {
    *near = *refused = 0;
    for (int i = 0; i < all->sets; i++) {
        *near += mp_infer_near(all, i);
        *refused += *all->set[i].refused != '\0';
    }
}

static struct mp_infer_counts count_best(const struct mp_inference *all,
                                         enum mp_reproduce_use use) {
    return mp_infer_count(all, all->best, use);
}

static void print_summary(const struct mp_inference *all) {
    int near, refused;
    char marks[CLI_MARKS];
    count_near(all, &near, &refused);
    puts("");
    cli_explain_marks(all->line, all->lines, marks);
    if (*marks)
        table_paragraph(stdout, "%s.", marks);
    for (int use = MP_USE_FIT; use <= MP_USE_SCORE; use++) {
        struct mp_infer_counts counts = count_best(all, (enum mp_reproduce_use)use);
        table_paragraph(stdout, "%s: %d of %d inside.", uses[use], counts.inside, counts.all);
    }
    table_paragraph(
        stdout,
        "%d sets of %d unknowns, %lld predictions; the best has the most fitted inside, "
        "and of those the least loss, %.3f; with it %d %s nearly as good, with at most %d "
        "fewer inside and a loss within %.2f.",
        all->sets, all->reproduction->unknowns, (long long)all->predictions,
        all->set[all->best].loss, near, near == 1 ? "is" : "are", MP_INFER_FEWER,
        MP_INFER_TOLERANCE);
    for (int i = 0; i < all->sets && refused; i++)
        if (*all->set[i].refused) {
            table_paragraph(stdout, "%d set%s could not be predicted; the first: %s.", refused,
                            refused == 1 ? "" : "s", all->set[i].refused);
            break;
        }
    puts("");
}

/* Below a heading if there are any.  Gives the sentences up. */
static void print_sentences(const char *heading, json_t *sentences) {
    size_t i;
    json_t *sentence;
    if (json_array_size(sentences))
        printf("\n%s\n", heading);
    json_array_foreach(sentences, i, sentence) {
        table_paragraph(stdout, "- %s.", json_string_value(sentence));
    }
    json_decref(sentences);
}

static void print_text(const struct mp_inference *all, const struct table *rows,
                       const struct table *unknowns) {
    table_paragraph(stdout, "%s: %s\n", all->reproduction->name, all->reproduction->description);
    table_print(rows, stdout);
    print_summary(all);
    table_print(unknowns, stdout);
    puts("\nunknown because:");
    for (int u = 0; u < all->reproduction->unknowns; u++)
        table_paragraph(stdout, "- %s: %s", all->reproduction->unknown[u].key,
                        all->reproduction->unknown[u].why);
    print_sentences("what no set explains:", mp_infer_contradictions(all));
    print_sentences("why each row outside is so:", mp_infer_outside(all));
}

static json_t *pack(const struct mp_inference *all, const struct table *rows,
                    const struct table *unknowns) {
    const struct mp_infer_counts fitted = count_best(all, MP_USE_FIT),
                                 held_out = count_best(all, MP_USE_SCORE);
    return json_pack("{ss si sI sf s[ii] s[ii] so so so so}", "paper", all->reproduction->name,
                     "sets", all->sets, "predictions", (json_int_t)all->predictions, "loss",
                     all->set[all->best].loss, "fitted", fitted.inside, fitted.all, "held_out",
                     held_out.inside, held_out.all, "lines", table_json(rows), "unknowns",
                     table_json(unknowns), "contradictions", mp_infer_contradictions(all),
                     "outside", mp_infer_outside(all));
}

int cli_print_inference(const struct mp_inference *all, enum mp_report_format format,
                        struct mp_error *error) {
    MP_AUTO(table) struct table rows = {0}, unknowns = {0};
    MP_TRY(fill_rows(all, &rows, error));
    MP_TRY(fill_unknowns(all, &unknowns, error));
    if (format == MP_REPORT_JSON)
        return cli_print_json(pack(all, &rows, &unknowns), error);
    if (format == MP_REPORT_TEXT) {
        print_text(all, &rows, &unknowns);
        return MP_OK;
    }
    cli_write_lines(all->reproduction->name, all->line, all->lines, &rows, format);
    putchar('\n');
    table_write(&unknowns, format, "unknowns", stdout);
    return MP_OK;
}

/* ---- the page ---- */

/* Where a number lies beside what is published: the logarithm of their ratio. */
static double beside(const struct mp_paper_row *row, double number) {
    double low, high, more = row->unit == MP_PAPER_CHANGE ? 1 : 0;
    mp_paper_range(row, &low, &high);
    double ratio = (number + more) / ((low + high) / 2 + more);
    return ratio > 0 ? log10(ratio) : isnan(ratio) ? NAN : -1;
}

/* A line with what is published and one number, called `what`. */
static void fill_line(const struct mp_reproduced *line, const char *what, struct mp_interval *row) {
    const struct mp_paper_row *published = &line->row->published;
    double low, high;
    char name[2 * MP_REPRODUCE_LABEL], published_text[80], number[32];
    mp_paper_range(published, &low, &high);
    *row = (struct mp_interval){.group = what,
                                .is_inside = line->is_inside,
                                .given = {beside(published, low), beside(published, high)},
                                .all = {NAN, NAN},
                                .near = {NAN, NAN},
                                .best = beside(published, line->value)};
    mp_reproduced_name(line, name);
    snprintf(row->label, sizeof row->label, "%.120s", name);
    cli_format_published(published, published_text);
    cli_format_figure(published->unit, line->value, number);
    snprintf(row->text, sizeof row->text, "published %s; %s %s%s, %s", published_text, what, number,
             line->out_of_memory ? " *" : "",
             isnan(line->value) ? "not predicted"
             : line->is_inside  ? "inside"
                                : "outside");
}

static void fill_row(const struct mp_inference *all, int i, struct mp_interval *row) {
    const struct mp_reproduced *line = &all->line[i];
    const struct mp_paper_row *published = &line->row->published;
    struct mp_infer_interval prior = mp_infer_prior(all, i), near = mp_infer_line(all, i);
    char between[80], sets[80];
    fill_line(line, "best", row);
    row->group = uses[line->row->use];
    row->all[0] = beside(published, prior.low);
    row->all[1] = beside(published, prior.high);
    row->near[0] = beside(published, near.low);
    row->near[1] = beside(published, near.high);
    cli_format_interval(published->unit, prior, sets);
    cli_format_interval(published->unit, near, between);
    mp_text_add(row->text, sizeof row->text, "; ", "nearly as good %s; prior %s", between, sets);
}

static void fill_unknown(const struct mp_inference *all, int u, struct mp_interval *row) {
    const struct mp_reproduce_unknown *unknown = &all->reproduction->unknown[u];
    struct mp_infer_interval near = mp_infer_unknown(all, u);
    char range[160], text[160];
    *row = (struct mp_interval){.group = "unknown",
                                .is_inside = true,
                                .given = {NAN, NAN},
                                .all = {0, 1},
                                .near = {near.low, near.high},
                                .best = all->set[all->best].place[u]};
    format_range(unknown, range);
    format_unknown(all, u, text);
    snprintf(row->label, sizeof row->label, "%s", unknown->key);
    snprintf(row->text, sizeof row->text, "range %s; best %s; nearly as good %s", range,
             all->set[all->best].value[u], text);
}

/* All of them, one a line. */
static int write_sentences(const struct mp_inference *all, char **text, struct mp_error *error) {
    MP_AUTO(json) json_t *sentences = mp_infer_contradictions(all);
    MP_AUTO(json) json_t *outside = mp_infer_outside(all);
    json_t *sentence;
    size_t i, size;
    FILE *memory = open_memstream(text, &size);
    if (!memory)
        return mp_no_memory(error);
    json_array_extend(sentences, outside);
    json_array_foreach(sentences, i, sentence) {
        fprintf(memory, "%s.\n", json_string_value(sentence));
    }
    return fclose(memory) ? mp_no_memory(error) : MP_OK;
}

int cli_draw_reproduction(const struct mp_reproduction *reproduction,
                          const struct mp_page_output *output, struct mp_error *error) {
    char title[128], marks[CLI_MARKS], about[CLI_MARKS + 256];
    MP_AUTO(memory) struct mp_interval *row = NULL;
    cli_explain_marks(reproduction->line, reproduction->lines, marks);
    snprintf(about, sizeof about, "%.200s\n%s", reproduction->description, marks);
    MP_TRY(MP_NEW(row, reproduction->lines + 1, error));
    for (int i = 0; i < reproduction->lines; i++)
        fill_line(&reproduction->line[i], "predicted", &row[i]);
    snprintf(title, sizeof title, "%.80s: published and predicted", reproduction->name);
    const struct mp_intervals_page page = {
        .title = title, .about = about, .row = row, .rows = reproduction->lines, .sentences = ""};
    return mp_intervals_html(&page, output, error);
}

int cli_draw_inference(const struct mp_inference *all, const struct mp_page_output *output,
                       struct mp_error *error) {
    const struct mp_infer_counts fitted = count_best(all, MP_USE_FIT),
                                 held_out = count_best(all, MP_USE_SCORE);
    const int unknowns = all->reproduction->unknowns;
    MP_AUTO(text) char *sentences = NULL;
    MP_AUTO(memory) struct mp_interval *row = NULL;
    char about[CLI_MARKS + 512], marks[CLI_MARKS], title[128];
    cli_explain_marks(all->line, all->lines, marks);
    snprintf(about, sizeof about,
             "%.200s\nFitted: %d of %d inside. Held out: %d of %d inside. %d sets, %lld "
             "predictions, none measured.\n%s",
             all->reproduction->description, fitted.inside, fitted.all, held_out.inside,
             held_out.all, all->sets, (long long)all->predictions, marks);
    snprintf(title, sizeof title, "%.80s: which assumptions explain it", all->reproduction->name);
    MP_TRY(MP_NEW(row, all->lines + unknowns, error));
    MP_TRY(write_sentences(all, &sentences, error));
    for (int i = 0; i < all->lines; i++)
        fill_row(all, i, &row[i]);
    for (int u = 0; u < unknowns; u++)
        fill_unknown(all, u, &row[all->lines + u]);
    const struct mp_intervals_page page = {.title = title,
                                           .about = about,
                                           .row = row,
                                           .rows = all->lines,
                                           .unknown = row + all->lines,
                                           .unknowns = unknowns,
                                           .sentences = sentences};
    return mp_intervals_html(&page, output, error);
}
