/* What moeperf predict prints: see predict.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/predict.h"
#include "harness/predict/bound.h"
#include "harness/suite/predicted.h"
#include "reference/base/characters.h"
#include "results/report/groups.h"
#include "results/report/query.h"
#include "results/report/table.h"

enum { FEW_ASSUMPTIONS = 3 };
static const double GIB = 1024.0 * 1024 * 1024;

static bool is_yardstick(const struct cli_prediction *item) {
    return item->job->file.system->capabilities & MP_SYSTEM_UNATTAINABLE;
}

/* Jobs with the same setting and loads are compared: they differ in system and options. */
bool cli_predictions_comparable(const struct cli_prediction *a, const struct cli_prediction *b) {
    char own[MP_TEXT_SIZE], other[MP_TEXT_SIZE];
    return mp_predict_job_setting(a->job, true) == mp_predict_job_setting(b->job, true) &&
           !strcmp(mp_predict_job_workload(a->job, own, sizeof own),
                   mp_predict_job_workload(b->job, other, sizeof other));
}

/* The first job of system ep under the same conditions; NULL if there is none. */
static const struct cli_prediction *reference_of(const struct cli_predictions *predictions,
                                                 const struct cli_prediction *own) {
    for (int i = 0; i < predictions->count; i++) {
        const struct cli_prediction *item = &predictions->item[i];
        if (!item->refusal && !strcmp(item->job->file.job.system, "ep") &&
            cli_predictions_comparable(item, own))
            return item;
    }
    return NULL;
}

static double share(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

static double speedup_of(const struct cli_predictions *predictions,
                         const struct cli_prediction *own) {
    const struct cli_prediction *ep = reference_of(predictions, own);
    return ep && own->summary.seconds_median > 0
               ? ep->summary.seconds_median / own->summary.seconds_median
               : NAN;
}

/* ---- assumptions ---- */

/* Those of all jobs, each once: the members of an object. */
struct list {
    json_t *lines;
    bool failed;
};

static void add_line(void *context, const char *text) {
    struct list *list = context;
    json_t *line = text_value(text);
    list->failed |= json_object_set_new(list->lines, json_string_value(line), json_null()) != 0;
    json_decref(line);
}

static int list_assumptions(const struct cli_predictions *predictions, json_t *lines,
                            struct mp_error *error) {
    struct list list = {.lines = lines};
    for (int i = 0; i < predictions->count; i++) {
        const struct cli_prediction *item = &predictions->item[i];
        if (!item->refusal)
            MP_TRY(mp_predict_job_assumptions(item->job, item->cluster, add_line, &list, error));
    }
    return list.failed ? mp_fail(error, MP_ENOMEM, "no memory for the assumptions") : MP_OK;
}

static int print_assumptions(const struct cli_predictions *predictions, struct mp_error *error) {
    MP_AUTO(json) json_t *lines = json_object();
    json_t *unused;
    const char *line;
    int number = 0;
    MP_TRY(list_assumptions(predictions, lines, error));
    const int count = (int)json_object_size(lines);
    const int shown =
        predictions->all_assumptions || count <= FEW_ASSUMPTIONS + 1 ? count : FEW_ASSUMPTIONS;
    putchar('\n');
    table_paragraph(stdout, "It rests on %d assumption%s%s:", count, count == 1 ? "" : "s",
                    shown < count ? ", of which the first are" : "");
    json_object_foreach(lines, line, unused) {
        if (number++ < shown)
            table_filled(stdout, 0, 2, line);
    }
    if (shown < count)
        puts("  ... --assumptions lists them all");
    return MP_OK;
}

/* ---- text ---- */

double cli_prediction_of_bound(const struct cli_prediction *item) {
    const struct mp_prediction_summary *summary = &item->summary;
    return item->bound.iterations > 0 &&
                   mp_bound_covers(item->job->file.system, item->job->file.job.exchange,
                                   summary->as_chosen, summary->shards)
               ? share(item->bound.seconds_mean, summary->seconds_mean)
               : NAN;
}

/* Of a job, or the bound on all. */
struct row {
    struct cli_prediction item;
    const char *label, *job, *system;
    double served_p99; /* NAN for steps of training */
    double speedup, of_bound, exposed, dropped, gib;
};

static void show_memory(const void *row, char text[TABLE_CELL]) {
    const struct row *own = row;
    snprintf(text, TABLE_CELL, isnan(own->gib) ? "-" : "%.1f%s", own->gib,
             own->item.summary.out_of_memory ? " (too much)" : "");
}

#define ROW(member) offsetof(struct row, member)
#define SUMMARY(member) offsetof(struct row, item.summary.member)
static const struct table_column columns[] = {
    {"system", TABLE_LEFT, .at = ROW(label)},
    {"median", TABLE_MS, "ms/it", "ms_per_iteration", SUMMARY(seconds_median),
     .decimals = TABLE_DIGITS},
    {"p99", TABLE_MS, "ms/it", .at = ROW(served_p99), .decimals = TABLE_DIGITS},
    {"vs\nEP", TABLE_NUMBER, NULL, "speedup_vs_ep", ROW(speedup), .decimals = 2},
    {"bound /\ntime", TABLE_NUMBER, "%", "of_bound", ROW(of_bound), .decimals = 1},
    {"exposed\ncomm.", TABLE_NUMBER, "%", "exposed_fraction", ROW(exposed), .decimals = 1},
    {"max/mean\nroutes", TABLE_NUMBER, NULL, "imbalance", SUMMARY(mean.imbalance), .decimals = 2},
    {"dropped", TABLE_NUMBER, "%", "dropped_fraction", ROW(dropped), 2, .only_used = true},
    {"memory", TABLE_RIGHT, "GiB", .show = show_memory},
    {"refused", TABLE_REMARK, NULL, "refused", .at = ROW(item.refusal)},
    {.key = "job", .at = ROW(job)},
    {.key = "system", .at = ROW(system)},
    {NULL, TABLE_COUNT, NULL, "expert_shards", .at = SUMMARY(shards)},
    {NULL, TABLE_LARGE, NULL, "iterations", .at = SUMMARY(iterations)},
    {NULL, TABLE_MS, NULL, "ms_p99", .at = SUMMARY(seconds_p99)},
    {NULL, TABLE_MS, NULL, "ms_mean", .at = SUMMARY(seconds_mean)},
    {NULL, TABLE_NUMBER, NULL, "tokens_per_s", .at = SUMMARY(tokens_per_second)},
    {NULL, TABLE_MS, NULL, "bound_ms_mean", .at = ROW(item.bound.seconds_mean)},
    {NULL, TABLE_MS, NULL, "bound_ms", .at = ROW(item.bound.seconds_median)},
    {NULL, TABLE_NUMBER, NULL, "memory_bytes", .at = SUMMARY(memory.total)},
    {NULL, TABLE_FLAG, NULL, "out_of_memory", .at = SUMMARY(out_of_memory)},
};
enum { COLUMNS = MP_LENGTH(columns) };

/* Where there are no numbers. */
static struct row empty_row(void) {
    struct row row = {.served_p99 = NAN,
                      .speedup = NAN,
                      .of_bound = NAN,
                      .exposed = NAN,
                      .dropped = NAN,
                      .gib = NAN};
    struct mp_prediction_summary *summary = &row.item.summary;
    summary->seconds_median = summary->seconds_mean = summary->seconds_p99 =
        summary->tokens_per_second = summary->mean.imbalance = summary->memory.total = NAN;
    row.item.bound.seconds_mean = row.item.bound.seconds_median = NAN;
    return row;
}

static struct row row_of(const struct cli_predictions *predictions,
                         const struct cli_prediction *item) {
    const struct mp_prediction *mean = &item->summary.mean;
    if (item->refusal) {
        struct row row = empty_row();
        row.item.refusal = item->refusal;
        row.job = item->job->file.job.name;
        row.system = item->job->file.job.system;
        return row;
    }
    struct row row = {.item = *item,
                      .job = item->job->file.job.name,
                      .system = item->job->file.job.system,
                      .served_p99 =
                          mp_job_serves(&item->job->file.job) ? item->summary.seconds_p99 : NAN,
                      .speedup = speedup_of(predictions, item),
                      .of_bound = cli_prediction_of_bound(item),
                      .exposed = share(mean->exposed_seconds, mean->seconds),
                      .dropped = share((double)mean->dropped, (double)mean->routes),
                      .gib = item->summary.memory.total / GIB};
    if (item->bound.iterations == 0)
        row.item.bound.seconds_mean = row.item.bound.seconds_median = NAN;
    return row;
}

/* What no system is faster than. */
static struct row row_of_bound(const struct cli_prediction *item) {
    struct row row = empty_row();
    row.item.bound = item->bound;
    row.label = row.job = "bound";
    row.of_bound = 1;
    row.item.summary.iterations = item->bound.iterations;
    row.item.summary.seconds_median = item->bound.seconds_median;
    row.item.summary.seconds_mean = item->bound.seconds_mean;
    return row;
}

static int add_row(const struct cli_predictions *predictions, const struct cli_prediction *item,
                   struct table *table, struct mp_error *error) {
    struct row row = row_of(predictions, item);
    char label[MP_TEXT_SIZE + sizeof REPORT_UNATTAINABLE];
    snprintf(label, sizeof label, "%s%s", item->job->file.job.name,
             is_yardstick(item) ? REPORT_UNATTAINABLE : "");
    row.label = label;
    return table_fill(table, &row, 1, sizeof row, error);
}

/* Of jobs under the same conditions as item[first]: one that was predicted, if there is one. */
static const struct cli_prediction *predicted_like(const struct cli_predictions *predictions,
                                                   int first) {
    for (int i = first; i < predictions->count; i++)
        if (!predictions->item[i].refusal &&
            cli_predictions_comparable(&predictions->item[first], &predictions->item[i]))
            return &predictions->item[i];
    return &predictions->item[first];
}

static void print_heading(const struct cli_prediction *item, FILE *out) {
    const struct mp_predict_job *job = item->job;
    const struct mp_job *sizes = &job->file.job;
    char loads[MP_TEXT_SIZE + 16], gate[MP_GATE_WORDS], model[MP_MODEL_WORDS];
    struct mp_topology topology = mp_cluster_topology(item->cluster);
    const int nodes = mp_topology_nodes(&topology);
    table_paragraph(out, "Predicted, not measured: %s, %d rank%s on %d node%s, %s", job->cluster,
                    topology.ranks, topology.ranks == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s",
                    item->cluster->device ? item->cluster->device : "");
    table_paragraph(out, "model: %s, gate %s", mp_job_model(sizes, model),
                    mp_job_gate(sizes, gate));
    table_paragraph(out, "loads: %s; %lld iteration%s",
                    mp_predict_job_workload(job, loads, sizeof loads),
                    (long long)item->summary.iterations, item->summary.iterations == 1 ? "" : "s");
}

void cli_print_prediction_heading(const struct cli_predictions *predictions, FILE *out) {
    const struct cli_axes *axes = predictions->points->axes;
    print_heading(predicted_like(predictions, 0), out);
    char varied[CLI_AXES * CLI_AXIS_TEXT] = "";
    for (int a = 0; a < axes->count; a++)
        mp_text_add(varied, sizeof varied, a + 1 < axes->count ? ", " : " and ", "%s",
                    axes->axis[a].key);
    if (axes->count > 0)
        table_paragraph(out, "Varied, and above with the first value: %s.", varied);
}

/* It is one for balance alone. */
static void note_yardstick(const struct cli_predictions *predictions,
                           const struct cli_prediction *yardstick) {
    const char *name = yardstick->job->file.job.name;
    const struct cli_prediction *fastest = NULL;
    for (int i = 0; i < predictions->count; i++) {
        const struct cli_prediction *item = &predictions->item[i];
        double least = (fastest ? fastest : yardstick)->summary.seconds_median;
        if (cli_predictions_comparable(yardstick, item) && !item->refusal && !is_yardstick(item) &&
            item->summary.seconds_median < least)
            fastest = item;
    }
    table_paragraph(stdout,
                    "%s is a yardstick and no system: what it does at no cost takes time on every "
                    "machine.",
                    name);
    if (fastest)
        table_paragraph(stdout,
                        "%s is faster still: %s only balances what ranks compute, and here less "
                        "has to travel under %s.",
                        fastest->job->file.job.name, name, fastest->job->file.job.name);
}

static const char BOUND_NOTE[] = "bound: no system that drops nothing, keeps the gate, leaves "
                                 "experts whole and sends rows as the job's exchange does takes "
                                 "less for these loads on this cluster, wherever it places and "
                                 "copies experts (proven; memory is no limit).  How near to it one "
                                 "can come is not said.";

bool cli_prediction_interval(const struct cli_prediction *item, const char *name,
                             char text[CLI_REMARK]) {
    static const char interval[] = "interval";
    const struct mp_job_file *file = &item->job->file;
    const size_t end = sizeof interval - 1;
    for (const struct mp_option *row = file->system->options; row && row->name; row++) {
        size_t length = strlen(row->name);
        char value[32];
        if (length < end || strcmp(row->name + length - end, interval) != 0 ||
            strtoll(mp_options_format(row, file->system_options, value, sizeof value), NULL, 10) <=
                item->summary.iterations)
            continue;
        snprintf(text, CLI_REMARK,
                 "%.200s: its %s, %s iterations, is longer than these %lld: what it does every so "
                 "often is in no number here (--iterations).",
                 name, row->name, value, (long long)item->summary.iterations);
        return true;
    }
    return false;
}

static const double FAR = 1.2; /* as moves every so many iterations bring it */

bool cli_prediction_mean(const struct cli_prediction *item, const char *name,
                         char text[CLI_REMARK]) {
    if (!(item->summary.seconds_mean > FAR * item->summary.seconds_median))
        return false;
    snprintf(
        text, CLI_REMARK,
        "%.200s: an iteration takes %.4g ms in the mean, %.2f times the median that is compared.",
        name, 1e3 * item->summary.seconds_mean,
        item->summary.seconds_mean / item->summary.seconds_median);
    return true;
}

/* What a row can't say in a number, of jobs under the conditions of `first`. */
static void print_notes(const struct cli_predictions *predictions, int first) {
    char memory[96], text[CLI_REMARK];
    for (int i = first; i < predictions->count; i++) {
        const struct cli_prediction *item = &predictions->item[i];
        const char *name = item->job->file.job.name;
        if (item->refusal || !cli_predictions_comparable(&predictions->item[first], item))
            continue;
        if (item->summary.out_of_memory)
            table_paragraph(stdout, "%s: out of memory: %s, so it could not run.", name,
                            mp_predicted_memory_text(&item->summary, memory, sizeof memory));
        if (item->summary.shards > 1)
            table_paragraph(stdout, "%s: every expert is cut into %d shards.", name,
                            item->summary.shards);
        if (cli_prediction_interval(item, name, text) || cli_prediction_mean(item, name, text))
            table_paragraph(stdout, "%s", text);
        if (is_yardstick(item))
            note_yardstick(predictions, item);
    }
}

/* The table of all jobs under the conditions of `first`. */
static int print_table(const struct cli_predictions *predictions, int first,
                       enum mp_report_format format, struct mp_error *error) {
    MP_AUTO(table) struct table table = table_of(columns, COLUMNS);
    table.drops_empty = true;
    for (int i = first; i < predictions->count; i++)
        if (cli_predictions_comparable(&predictions->item[first], &predictions->item[i]))
            MP_TRY(add_row(predictions, &predictions->item[i], &table, error));
    const struct cli_prediction *like = predicted_like(predictions, first);
    bool bounded = like->bound.iterations > 0;
    const struct row bound = row_of_bound(like);
    if (bounded)
        MP_TRY(table_fill(&table, &bound, 1, sizeof bound, error));
    if (format != MP_REPORT_TEXT) {
        char title[2 * MP_TEXT_SIZE], loads[MP_TEXT_SIZE + 16], point[MP_TEXT_SIZE] = "";
        const struct cli_points *points = predictions->points;
        if (points->axes->count > 0)
            cli_axes_name(points->axes, points->item[first].number, point, sizeof point);
        snprintf(title, sizeof title, "%s: %.2000s%s%.2000s", like->job->cluster,
                 mp_predict_job_workload(like->job, loads, sizeof loads), *point ? "," : "", point);
        table_write(&table, format, title, stdout);
    } else {
        print_heading(like, stdout);
        table_print(&table, stdout);
        if (bounded)
            table_paragraph(stdout, "%s", BOUND_NOTE);
        else if (!like->refusal)
            table_paragraph(stdout,
                            "The bound would take more than a second or so: --bound works it out.");
        print_notes(predictions, first);
    }
    return MP_OK;
}

static int print_tables(const struct cli_predictions *predictions, enum mp_report_format format,
                        struct mp_error *error) {
    for (int i = 0, like = 0; i < predictions->count; i++, like = 0) {
        while (!cli_predictions_comparable(&predictions->item[like], &predictions->item[i]))
            like++;
        if (like < i) /* it is in that one's table */
            continue;
        if (i > 0)
            putchar('\n');
        MP_TRY(print_table(predictions, i, format, error));
    }
    return MP_OK;
}

/* ---- JSON ---- */

static void pack_figures(const struct mp_named_number table[], const struct mp_prediction *figures,
                         json_t *object) {
    for (const struct mp_named_number *row = table; row->name; row++) {
        double value = mp_named_value(row, figures);
        json_object_set_new(object, row->name,
                            row->kind == MP_NUMBER_DOUBLE ? number_value(value)
                                                          : json_integer((json_int_t)value));
    }
}

static json_t *pack_sums(const struct mp_prediction *sums) {
    static const char *const stages[MP_STAGES] = {
        [MP_STAGE_BEFORE_GATE] = "before_gate",
        [MP_STAGE_AFTER_GATE] = "after_gate",
        [MP_STAGE_BACKWARD_PREFETCH] = "backward_prefetch",
        [MP_STAGE_BACKWARD_REDUCE] = "backward_reduce",
        [MP_STAGE_AFTER_STEP] = "after_step",
    };
    json_t *bytes = json_object(), *object = json_object();
    pack_figures(mp_prediction_sums, sums, object);
    for (int stage = 0; stage < MP_STAGES; stage++)
        json_object_set_new(bytes, stages[stage], number_value(sums->bytes[stage]));
    json_object_set_new(object, "bytes", bytes);
    return object;
}

static json_t *pack_memory(const struct mp_prediction_summary *summary) {
    const struct mp_memory *memory = &summary->memory;
    return json_pack("{s:i s:b s:f s:f s:f s:f s:f s:f s:f s:f s:f s:f}", "rank",
                     summary->memory_rank, "out_of_memory", summary->out_of_memory, "total_bytes",
                     memory->total, "limit_bytes", memory->limit, "dense_bytes", memory->dense,
                     "expert_parameter_bytes", memory->parameters, "copy_bytes", memory->copies,
                     "gradient_bytes", memory->gradients, "optimizer_bytes", memory->optimizer,
                     "activation_bytes", memory->activations, "cache_bytes", memory->cache,
                     "buffer_bytes", memory->buffers);
}

static json_t *pack_options(const struct mp_option table[], const void *options) {
    char value[MP_TEXT_SIZE];
    json_t *object = json_object();
    for (const struct mp_option *option = table; option && option->name; option++)
        json_object_set_new(object, option->name,
                            text_value(mp_options_format(option, options, value, sizeof value)));
    return object;
}

static json_t *pack_model(const struct mp_job *job) {
    char gate[MP_GATE_WORDS];
    return json_pack("{s:i s:i s:i s:i s:i s:i s:i s:i s:i s:s s:s s:i}", "ranks", job->ranks,
                     "layers", job->layers, "width", job->width, "heads", job->heads, "experts",
                     job->experts, "expert_width", job->expert_width, "shared_experts",
                     job->shared_experts, "sequence", mp_job_step_tokens(job), "batch", job->batch,
                     "gate", mp_job_gate(job, gate), "mode", mp_job_mode(job), "context",
                     job->context);
}

static json_t *pack_item(const struct cli_predictions *predictions,
                         const struct cli_prediction *item) {
    const struct mp_predict_job *job = item->job;
    const struct mp_prediction_summary *summary = &item->summary;
    char loads[MP_TEXT_SIZE + 16];
    json_t *object = json_object();
    json_object_set_new(object, "job", text_value(job->file.job.name));
    json_object_set_new(object, "system", text_value(job->file.job.system));
    json_object_set_new(object, "options",
                        pack_options(job->file.system->options, job->file.system_options));
    json_object_set_new(object, "executor", json_string("predicted"));
    json_object_set_new(object, "unattainable", json_boolean(is_yardstick(item)));
    json_object_set_new(object, "cluster", text_value(job->cluster));
    json_object_set_new(object, "change", text_value(job->change));
    json_object_set_new(object, "model", pack_model(&job->file.job));
    json_object_set_new(object, "loads",
                        text_value(mp_predict_job_workload(job, loads, sizeof loads)));
    json_object_set_new(object, "predict", pack_options(mp_predict_options_table, &job->options));
    json_object_set_new(object, "refused", item->refusal ? text_value(item->refusal) : json_null());
    if (item->refusal)
        return object;
    struct row row = row_of(predictions, item);
    json_object_update_new(object, table_object(columns, COLUMNS, &row));
    for (int i = 0; i < 3 && item->bound.iterations == 0; i++)
        json_object_del(object, (const char *[]){"bound_ms", "bound_ms_mean", "of_bound"}[i]);
    json_t *mean = json_object();
    pack_figures(mp_prediction_means, &summary->mean, mean);
    json_object_set_new(object, "mean", mean);
    json_object_set_new(object, "total", pack_sums(&summary->mean)); /* of all iterations */
    json_object_set_new(object, "memory", pack_memory(summary));
    return object;
}

static json_t *pack_point(const struct cli_points *points, int number) {
    const struct cli_axes *axes = points->axes;
    json_t *object = json_object();
    for (int a = 0; a < axes->count; a++)
        json_object_set_new(object, axes->axis[a].key,
                            text_value(cli_axes_value(axes, points->item[number].number, a)));
    return object;
}

static int print_json(const struct cli_predictions *predictions, struct mp_error *error) {
    const bool varies = predictions->points->axes->count > 0;
    MP_AUTO(table) struct table standings = {0};
    MP_AUTO(json) json_t *object = json_object(), *assumptions = json_object();
    json_t *items = json_array(), *lines = json_array(), *unused;
    const char *line;
    if (varies) {
        MP_TRY(cli_standing_table(predictions, &standings, error));
        json_object_set_new(object, "standings", table_json(&standings));
    }
    json_object_set_new(object, "predicted", json_true());
    json_object_set_new(object, "systems", items);
    json_object_set_new(object, "left_out", text_value(predictions->points->left_out));
    json_object_set_new(object, "assumptions", lines);
    MP_TRY(list_assumptions(predictions, assumptions, error));
    for (int i = 0; i < predictions->count; i++) {
        json_t *item = pack_item(predictions, &predictions->item[i]);
        if (varies)
            json_object_set_new(item, "varied", pack_point(predictions->points, i));
        json_array_append_new(items, item);
    }
    json_object_foreach(assumptions, line, unused) {
        json_array_append_new(lines, json_string(line));
    }
    if (predictions->database) {
        json_object_set_new(object, "database", text_value(predictions->database));
        json_object_set_new(object, "suite_run", text_value(predictions->suite_run));
    }
    return cli_print_json(json_incref(object), error);
}

/* ---- any format ---- */

/* The tables alone, of all points and of where systems stand over them. */
static int write_tables(const struct cli_predictions *predictions, enum mp_report_format format,
                        struct mp_error *error) {
    MP_AUTO(table) struct table table = {0};
    MP_TRY(print_tables(predictions, format, error));
    if (predictions->points->axes->count > 0) {
        MP_TRY(cli_standing_table(predictions, &table, error));
        putchar('\n');
        table_write(&table, format, "Over all points", stdout);
        if (*predictions->points->left_out)
            table_paragraph(stderr, "%s", predictions->points->left_out);
    }
    return check_printed(stdout, error);
}

int cli_print_predictions(const struct cli_predictions *predictions, enum mp_report_format format,
                          struct mp_error *error) {
    if (format == MP_REPORT_JSON)
        return print_json(predictions, error);
    if (format != MP_REPORT_TEXT)
        return write_tables(predictions, format, error);
    if (predictions->points->axes->count > 0) {
        cli_print_prediction_heading(predictions, stdout);
        MP_TRY(cli_print_grids(predictions, error));
    } else {
        MP_TRY(print_tables(predictions, format, error));
    }
    if (*predictions->points->left_out)
        table_paragraph(stdout, "%s", predictions->points->left_out);
    MP_TRY(print_assumptions(predictions, error));
    if (predictions->database)
        printf("\nEverything is in %s, flagged as predicted.\n", predictions->database);
    return MP_OK;
}
