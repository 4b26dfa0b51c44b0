/* What moeperf predict prints: see predict.h. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/predict.h"
#include "harness/cli/predict_standing.h"
#include "harness/predict/bound.h"
#include "harness/suite/predicted.h"
#include "results/report/groups.h"
#include "results/report/query.h"
#include "results/report/table.h"

enum { FEW_ASSUMPTIONS = 3, LINE_SIZE = 512 };
static const double GIB = 1024.0 * 1024 * 1024;

static bool is_yardstick(const struct cli_prediction *item) {
    return item->job->file.system->capabilities & MP_SYSTEM_UNATTAINABLE;
}

static bool same_value(const struct mp_option *option, const void *a, const void *b) {
    char own[MP_TEXT_SIZE], other[MP_TEXT_SIZE];
    return !strcmp(mp_options_format(option, a, own, sizeof own),
                   mp_options_format(option, b, other, sizeof other));
}

/* Jobs with the same model, loads and cluster are compared: they differ in system and options. */
bool cli_predictions_comparable(const struct cli_prediction *a, const struct cli_prediction *b) {
    static const char *const sizes[] = {
        "ranks", "layers",     "width",        "heads", "experts", "expert-width",   "sequence",
        "gate",  "top-k",      "renormalise",  "batch", "routing", "shared-experts", "load",
        "trace", "skew-share", "skew-experts", "mode",  "context"};
    bool same = true;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && same; i++)
        same = same_value(mp_options_find(mp_job_options, sizes[i]), &a->job->file.job,
                          &b->job->file.job);
    for (const struct mp_option *row = mp_predict_job_options; row->name && same; row++)
        same = same_value(row, a->job, b->job);
    for (const struct mp_option *row = mp_predict_options_table; row->name && same; row++)
        same = same_value(row, &a->job->options, &b->job->options);
    return same;
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

/* Those of all jobs, each once. */
struct list {
    char **line; /* [count], owned */
    int count;
    bool failed;
};

static void add_line(void *context, const char *text) {
    struct list *list = context;
    for (int i = 0; i < list->count; i++)
        if (!strcmp(list->line[i], text))
            return;
    char **grown = realloc(list->line, ((size_t)list->count + 1) * sizeof *grown);
    if (grown)
        list->line = grown;
    char *copy = grown ? strdup(text) : NULL;
    if (copy)
        list->line[list->count++] = copy;
    else
        list->failed = true;
}

static void free_list(struct list *list) {
    for (int i = 0; i < list->count; i++)
        free(list->line[i]);
    free(list->line);
}

static int list_assumptions(const struct cli_predictions *predictions, struct list *list,
                            struct mp_error *error) {
    int code = MP_OK;
    *list = (struct list){0};
    for (int i = 0; i < predictions->count && !code; i++) {
        const struct cli_prediction *item = &predictions->item[i];
        if (!item->refusal)
            code = mp_predict_job_assumptions(item->job, item->cluster, add_line, list, error);
    }
    if (!code && list->failed)
        code = mp_fail(error, MP_ENOMEM, "no memory for the assumptions");
    return code;
}

static int print_assumptions(const struct cli_predictions *predictions, struct mp_error *error) {
    struct list list;
    int code = list_assumptions(predictions, &list, error);
    int shown = predictions->all_assumptions || list.count <= FEW_ASSUMPTIONS + 1 ? list.count
                                                                                  : FEW_ASSUMPTIONS;
    if (!code) {
        printf("\nIt rests on %d assumptions%s:\n", list.count,
               shown < list.count ? ", of which the first are" : "");
        for (int i = 0; i < shown; i++)
            cli_print_filled(stdout, 2, list.line[i]);
        if (shown < list.count)
            puts("  ... --assumptions lists them all");
    }
    free_list(&list);
    return code;
}

/* ---- text ---- */

enum { SYSTEM, MS, P99, SPEEDUP, OF_BOUND, EXPOSED, IMBALANCE, DROPPED, MEMORY, COLUMNS };

static const struct table_column columns[COLUMNS] = {
    [SYSTEM] = {"system", TABLE_LEFT},
    [MS] = {"median\nms/it", TABLE_RIGHT},
    [P99] = {"p99\nms/it", TABLE_RIGHT},
    [SPEEDUP] = {"vs\nEP", TABLE_RIGHT},
    [OF_BOUND] = {"bound /\ntime %", TABLE_RIGHT},
    [EXPOSED] = {"exposed\ncomm. %", TABLE_RIGHT},
    [IMBALANCE] = {"max/mean\nroutes", TABLE_RIGHT},
    [DROPPED] = {"dropped\n%", TABLE_RIGHT},
    [MEMORY] = {"memory\nGiB", TABLE_RIGHT},
};

double cli_prediction_of_bound(const struct cli_prediction *item) {
    const struct mp_prediction_summary *summary = &item->summary;
    return item->bound.iterations > 0 &&
                   mp_bound_covers(item->job->file.system, item->job->file.job.exchange,
                                   summary->mean.dropped > 0, summary->shards)
               ? share(item->bound.seconds_mean, summary->seconds_mean)
               : NAN;
}

static int decimals_of(double ms) {
    return ms >= 1000 ? 0 : ms >= 100 ? 1 : 2;
}

/* What no system is faster than. */
static int add_bound(const struct cli_prediction *item, struct table *table,
                     struct mp_error *error) {
    double ms = 1e3 * item->bound.seconds_median;
    int code = item->bound.iterations > 0 ? table_add(table, NULL, error) : MP_OK;
    if (code || item->bound.iterations == 0)
        return code;
    table_set(table, SYSTEM, "bound");
    table_set_number(table, MS, ms, decimals_of(ms));
    table_set_number(table, OF_BOUND, 100, 1);
    return MP_OK;
}

static int add_row(const struct cli_predictions *predictions, const struct cli_prediction *item,
                   struct table *table, struct mp_error *error) {
    const struct mp_prediction_summary *summary = &item->summary;
    double ms = 1e3 * summary->seconds_median;
    int code = table_add(table, NULL, error);
    if (code)
        return code;
    table_set(table, SYSTEM, "%s%s", item->job->file.job.name,
              is_yardstick(item) ? REPORT_UNATTAINABLE : "");
    if (item->refusal) {
        char refusal[REPORT_REFUSAL];
        snprintf(refusal, sizeof refusal, "refused: %s", item->refusal);
        return table_remark(table, refusal, error);
    }
    int decimals = decimals_of(ms);
    table_set_number(table, MS, ms, decimals);
    if (mp_job_serves(&item->job->file.job))
        table_set_number(table, P99, 1e3 * summary->seconds_p99, decimals);
    table_set_number(table, SPEEDUP, speedup_of(predictions, item), 2);
    table_set_number(table, OF_BOUND, 100 * cli_prediction_of_bound(item), 1);
    table_set_number(table, EXPOSED,
                     100 * share(summary->mean.exposed_seconds, summary->mean.seconds), 1);
    table_set_number(table, IMBALANCE, summary->mean.imbalance, 2);
    table_set_number(table, DROPPED,
                     100 * share((double)summary->mean.dropped, (double)summary->mean.routes), 2);
    table_set(table, MEMORY, "%.1f%s", summary->memory.total / GIB,
              summary->out_of_memory ? " (too much)" : "");
    return MP_OK;
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
    table_paragraph(out, "Predicted, not measured: %s, %d ranks on %d nodes, %s", job->cluster,
                    topology.ranks, mp_topology_nodes(&topology),
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
    size_t length = 0;
    for (int a = 0; a < axes->count; a++)
        length += (size_t)snprintf(varied + length, sizeof varied - length, "%s%s",
                                   a == 0                ? ""
                                   : a + 1 < axes->count ? ", "
                                                         : " and ",
                                   axes->axis[a].key);
    if (axes->count > 0)
        table_paragraph(out, "Varied, and above with the first value: %s.", varied);
}

/* It is one for balance alone. */
static void note_yardstick(const struct cli_predictions *predictions, const bool shown[],
                           const struct cli_prediction *yardstick) {
    const char *name = yardstick->job->file.job.name;
    const struct cli_prediction *fastest = NULL;
    for (int i = 0; i < predictions->count; i++) {
        const struct cli_prediction *item = &predictions->item[i];
        double least = (fastest ? fastest : yardstick)->summary.seconds_median;
        if (shown[i] && !item->refusal && !is_yardstick(item) &&
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
                                 "experts whole and sends rows as the "
                                 "job's exchange does takes less for these loads on this cluster, "
                                 "wherever it places and copies experts (proven; memory is no "
                                 "limit).  How near to it "
                                 "one can come is not said.";

/* What a row can't say in a number. */
static void print_notes(const struct cli_predictions *predictions, const bool shown[]) {
    char memory[96];
    for (int i = 0; i < predictions->count; i++) {
        const struct cli_prediction *item = &predictions->item[i];
        const char *name = item->job->file.job.name;
        if (!shown[i] || item->refusal)
            continue;
        if (item->summary.out_of_memory)
            table_paragraph(stdout, "%s: out of memory: %s, so it could not run.", name,
                            mp_predicted_memory_text(&item->summary, memory, sizeof memory));
        if (item->summary.shards > 1)
            table_paragraph(stdout, "%s: every expert is cut into %d shards.", name,
                            item->summary.shards);
        if (is_yardstick(item))
            note_yardstick(predictions, shown, item);
    }
}

/* The table of all jobs under the conditions of `first`; they are marked as shown. */
static int print_table(const struct cli_predictions *predictions, int first, bool done[],
                       struct mp_error *error) {
    struct table table;
    bool *shown = calloc((size_t)predictions->count, sizeof *shown);
    int code = shown ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for the table");
    bool has_dropped = false;
    table_init(&table, columns, COLUMNS);
    table.drops_empty = true;
    for (int i = first; i < predictions->count && !code; i++) {
        if (done[i] ||
            !cli_predictions_comparable(&predictions->item[first], &predictions->item[i]))
            continue;
        done[i] = shown[i] = true;
        has_dropped |= predictions->item[i].summary.mean.dropped > 0;
        code = add_row(predictions, &predictions->item[i], &table, error);
    }
    if (!code)
        code = add_bound(predicted_like(predictions, first), &table, error);
    if (!code) {
        table.optional[DROPPED] = has_dropped ? 0 : 1;
        print_heading(predicted_like(predictions, first), stdout);
        table_print(&table, stdout);
        if (predicted_like(predictions, first)->bound.iterations > 0)
            table_paragraph(stdout, "%s", BOUND_NOTE);
        print_notes(predictions, shown);
    }
    table_free(&table);
    free(shown);
    return code;
}

static int print_tables(const struct cli_predictions *predictions, struct mp_error *error) {
    bool *done = calloc((size_t)predictions->count, sizeof *done);
    int code = done ? MP_OK : mp_fail(error, MP_ENOMEM, "no memory for the tables");
    for (int i = 0; i < predictions->count && !code; i++) {
        if (done[i])
            continue;
        if (i > 0)
            putchar('\n');
        code = print_table(predictions, i, done, error);
    }
    free(done);
    return code;
}

int cli_print_predictions(const struct cli_predictions *predictions, struct mp_error *error) {
    int code = MP_OK;
    if (predictions->points->axes->count > 0) {
        cli_print_prediction_heading(predictions, stdout);
        code = cli_print_grids(predictions, error);
    } else {
        code = print_tables(predictions, error);
    }
    if (!code && *predictions->points->left_out)
        table_paragraph(stdout, "%s", predictions->points->left_out);
    if (!code)
        code = print_assumptions(predictions, error);
    if (!code && predictions->database)
        printf("\nEverything is in %s, flagged as predicted.\n", predictions->database);
    if (!code && (fflush(stdout) || ferror(stdout)))
        code = mp_fail(error, MP_EIO, "can't write the table: %s", strerror(errno));
    return code;
}

/* ---- JSON ---- */

static const struct {
    const char *name;
    size_t offset;
} prediction_fields[] = {
#define SECONDS(member)                                                                            \
    { #member, offsetof(struct mp_prediction, member) }
    SECONDS(seconds),
    SECONDS(compute_seconds),
    SECONDS(exposed_seconds),
    SECONDS(late_seconds),
    SECONDS(exchange_seconds),
    SECONDS(expert_seconds),
    SECONDS(expert_seconds_max),
    SECONDS(moe_seconds),
    SECONDS(attention_seconds),
    SECONDS(transfer_seconds),
    SECONDS(transfer_exposed_seconds),
    SECONDS(move_seconds),
    SECONDS(all_reduce_exposed_seconds),
    SECONDS(port_seconds),
    SECONDS(serial_seconds),
    SECONDS(imbalance),
    SECONDS(exchanged_bytes),
#undef SECONDS
};

static json_t *pack_mean(const struct mp_prediction *mean) {
    static const char *const stages[MP_STAGES] = {
        [MP_STAGE_BEFORE_GATE] = "before_gate",
        [MP_STAGE_AFTER_GATE] = "after_gate",
        [MP_STAGE_BACKWARD_PREFETCH] = "backward_prefetch",
        [MP_STAGE_BACKWARD_REDUCE] = "backward_reduce",
        [MP_STAGE_AFTER_STEP] = "after_step",
    };
    json_t *object = json_object(), *bytes = json_object();
    for (size_t i = 0; i < sizeof prediction_fields / sizeof *prediction_fields; i++) {
        double value;
        memcpy(&value, (const char *)mean + prediction_fields[i].offset, sizeof value);
        json_object_set_new(object, prediction_fields[i].name, json_number(value));
    }
    json_object_set_new(object, "routes", json_integer(mean->routes));
    json_object_set_new(object, "dropped", json_integer(mean->dropped));
    json_object_set_new(object, "copies", json_integer(mean->copies));
    for (int stage = 0; stage < MP_STAGES; stage++)
        json_object_set_new(bytes, stages[stage], json_number(mean->bytes[stage]));
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
                            json_text(mp_options_format(option, options, value, sizeof value)));
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
    json_object_set_new(object, "job", json_text(job->file.job.name));
    json_object_set_new(object, "system", json_text(job->file.job.system));
    json_object_set_new(object, "options",
                        pack_options(job->file.system->options, job->file.system_options));
    json_object_set_new(object, "executor", json_string("predicted"));
    json_object_set_new(object, "unattainable", json_boolean(is_yardstick(item)));
    json_object_set_new(object, "cluster", json_text(job->cluster));
    json_object_set_new(object, "change", json_text(job->change));
    json_object_set_new(object, "model", pack_model(&job->file.job));
    json_object_set_new(object, "loads",
                        json_text(mp_predict_job_workload(job, loads, sizeof loads)));
    json_object_set_new(object, "predict", pack_options(mp_predict_options_table, &job->options));
    json_object_set_new(object, "refused", item->refusal ? json_text(item->refusal) : json_null());
    if (item->refusal)
        return object;
    json_object_set_new(object, "expert_shards", json_integer(summary->shards));
    json_object_set_new(object, "iterations", json_integer(summary->iterations));
    json_object_set_new(object, "ms_per_iteration", json_number(1e3 * summary->seconds_median));
    json_object_set_new(object, "ms_mean", json_number(1e3 * summary->seconds_mean));
    json_object_set_new(object, "ms_p99", json_number(1e3 * summary->seconds_p99));
    json_object_set_new(object, "tokens_per_s", json_number(summary->tokens_per_second));
    json_object_set_new(object, "speedup_vs_ep", json_number(speedup_of(predictions, item)));
    if (item->bound.iterations > 0) {
        json_object_set_new(object, "bound_ms_mean", json_number(1e3 * item->bound.seconds_mean));
        json_object_set_new(object, "bound_ms", json_number(1e3 * item->bound.seconds_median));
        json_object_set_new(object, "of_bound", json_number(cli_prediction_of_bound(item)));
    }
    json_object_set_new(object, "exposed_fraction",
                        json_number(share(summary->mean.exposed_seconds, summary->mean.seconds)));
    json_object_set_new(object, "imbalance", json_number(summary->mean.imbalance));
    json_object_set_new(
        object, "dropped_fraction",
        json_number(share((double)summary->mean.dropped, (double)summary->mean.routes)));
    json_object_set_new(object, "mean", pack_mean(&summary->mean));
    json_object_set_new(object, "memory", pack_memory(summary));
    return object;
}

static json_t *pack_point(const struct cli_points *points, int number) {
    const struct cli_axes *axes = points->axes;
    json_t *object = json_object();
    for (int a = 0; a < axes->count; a++)
        json_object_set_new(object, axes->axis[a].key,
                            json_text(axes->axis[a].value[points->item[number].at[a]]));
    return object;
}

int cli_print_predictions_json(const struct cli_predictions *predictions, struct mp_error *error) {
    struct list list;
    json_t *items = json_array(), *lines = json_array(), *object = json_object();
    int code = list_assumptions(predictions, &list, error);
    for (int i = 0; i < predictions->count; i++) {
        json_t *item = pack_item(predictions, &predictions->item[i]);
        if (predictions->points->axes->count > 0)
            json_object_set_new(item, "varied", pack_point(predictions->points, i));
        json_array_append_new(items, item);
    }
    for (int i = 0; i < list.count; i++)
        json_array_append_new(lines, json_text(list.line[i]));
    free_list(&list);
    json_object_set_new(object, "predicted", json_true());
    json_object_set_new(object, "systems", items);
    if (predictions->points->axes->count > 0)
        json_object_set_new(object, "standings", cli_standing_json(predictions));
    json_object_set_new(object, "left_out", json_text(predictions->points->left_out));
    json_object_set_new(object, "assumptions", lines);
    if (predictions->database) {
        json_object_set_new(object, "database", json_text(predictions->database));
        json_object_set_new(object, "suite_run", json_text(predictions->suite_run));
    }
    if (!code)
        return cli_print_json(object, error);
    json_decref(object);
    return code;
}
