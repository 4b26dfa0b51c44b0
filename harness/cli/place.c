/* moeperf place: where a system would put experts for given loads, and whether that pays. */
#include "harness/place/decide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/cli.h"
#include "harness/cli/predict_job.h"
#include "harness/suite/progress.h"
#include "harness/suite/seconds.h"
#include "harness/suite/suite.h"
#include "reference/base/characters.h"
#include "results/report/query.h"
#include "results/report/table.h"

enum { SETTING_SIZE = MP_TEXT_SIZE + 32 };

static struct {
    struct cli_job_flags job;
    const char *system, *output, *kind, *history;
    bool decide, json;
} given;

static const struct cli_flag known_flags[] = {
    {"--trace", CLI_VALUE, &given.job.trace, "FILE",
     "the loads: a trace, or what moeperf import reads by\n"
     "its ending, as SGLang's recorder writes it"},
    {"--loads", CLI_VALUE, &given.job.loads, "TEXT",
     "the loads: a generator and its options in one word\n"
     "(moeperf generate --help)"},
    {"--cluster", CLI_VALUE, &given.job.cluster, "NAME",
     "a ready-made cluster (moeperf list clusters) or a file"},
    {"--nodes", CLI_WHOLE, CLI_NUMBER(&given.job.nodes, 1, CLI_NODES_MOST), "N",
     "so many nodes of it instead"},
    {"--system", CLI_VALUE, &given.system, "NAME[:OPTION=VALUE,...]",
     "whose planner places (eplb): one whose homes change"},
    {"--decide", CLI_SWITCH, &given.decide, NULL, "says whether to turn the system on, and why"},
    {"--history", CLI_VALUE, &given.history, "N%",
     "of the iterations, the first that the placement is made\n"
     "of (50%); it is judged on the rest"},
    {"-o", CLI_VALUE, &given.output, "OUT", "file to write the placement to"},
    {"--as", CLI_VALUE, &given.kind, "KIND",
     "json (the default); sglang: --init-expert-location;\n"
     "vllm: vLLM Ascend's expert_map_path"},
    {"--set", CLI_REPEATED, &given.job.set, "KEY=VALUE",
     "sets an option of the job, predict.KEY=VALUE one of\n"
     "predictions, options.KEY=VALUE one of the system; may\n"
     "be repeated"},
    {"--iterations", CLI_WHOLE, CLI_NUMBER(&given.job.iterations, 1, CLI_ITERATIONS_MOST), "N",
     "at most so many (30 of a generator, 100 of a trace)"},
    {"--fit", CLI_SWITCH, &given.job.fit, NULL, "folds or splits a trace of another shape"},
    {"--json", CLI_SWITCH, &given.json, NULL, "prints one JSON object"},
    {0},
};
static const struct cli_usage usage = {
    "moeperf place (--trace FILE | --loads TEXT) --cluster NAME [options]",
    "Runs a system's planner over recorded loads and takes the placement of experts\n"
    "that it ends with: how even it makes ranks, what it saves and costs, as\n"
    "predicted on later loads than it was made of, and as a file that serving\n"
    "engines read.  With --decide it answers first what to ask before a balancer is\n"
    "turned on; \"leave it off\" is an answer, and every answer ends with status 0.",
    known_flags,
    0,
    0,
    "  moeperf place --trace counts.json --cluster b200 --system eplb:replicas=288 \\\n"
    "    --as sglang -o placement.json\n"
    "  moeperf place --trace loads.mptrace --cluster h100 --decide\n"
    "  moeperf place --loads \"dynamics seed=3\" --cluster hecate-b --system smartmoe \\\n"
    "    --history 30% --decide --json\n"};

/* ---- the job ---- */

/* The system with its options, from --system and from --set. */
static int set_system(const struct mp_systems *systems, struct mp_predict_job *job,
                      struct mp_error *error) {
    struct cli_system_words words;
    char text[SETTING_SIZE];
    MP_TRY(cli_system_words_parse(systems, given.system ? given.system : "eplb", &words, error));
    snprintf(text, sizeof text, "system=%s", words.system->name);
    MP_TRY(mp_predict_job_set(job, text, systems, error));
    for (int i = 0; i < words.options; i++) {
        snprintf(text, sizeof text, "options.%s=%s", words.option[i][0], words.option[i][1]);
        MP_TRY(mp_predict_job_set(job, text, systems, error));
    }
    for (int i = 0; i < given.job.set.count; i++)
        if (!strncmp(given.job.set.word[i], "options.", 8))
            MP_TRY(mp_predict_job_set(job, given.job.set.word[i], systems, error));
    return MP_OK;
}

static bool is_set(const char *key) {
    const size_t length = strlen(key);
    return MP_ANY(i, given.job.set.count,
                  !strncmp(given.job.set.word[i], key, length) &&
                      given.job.set.word[i][length] == '=');
}

static const char *plural(int64_t count) {
    return count == 1 ? "" : "s";
}

enum { DECODED = 128, CACHED = 2048 }; /* sequences of a rank, and tokens of each */

/* Loads that a serving engine recorded are predicted as serving unless a mode is set: decode if
 * their name has that word, else prefill.  What was chosen goes into `words`. */
static int choose_mode(const struct mp_cluster *cluster, struct mp_predict_job *job, char *words,
                       size_t size, struct mp_error *error) {
    struct mp_trace_stream *stream;
    struct mp_job *sizes = &job->file.job;
    *words = '\0';
    if (is_set("mode") || given.job.loads)
        return MP_OK;
    MP_TRY(mp_predict_job_loads(job, cluster, &stream, error));
    const struct mp_trace_info *info = mp_trace_stream_info(stream);
    const bool serving = mp_predict_loads_are_served(info->source);
    const bool decoding = serving && strstr(info->source, "decode"), of_run = info->of_run;
    mp_trace_stream_destroy(stream);
    if (!serving)
        return MP_OK;
    sizes->mode = decoding ? MP_MODE_DECODE : MP_MODE_PREFILL;
    if (decoding && !is_set("batch"))
        sizes->batch = of_run || job->fit ? DECODED * sizes->ranks : sizes->batch * sizes->sequence;
    if (decoding && !is_set("context"))
        sizes->context = CACHED;
    snprintf(words, size,
             "A serving engine recorded these loads, so %s is predicted%s: %d sequence%s per rank "
             "with %d tokens in the cache (--set mode=, batch=, context=).",
             decoding ? "decode" : "prefill", decoding ? ", as their name says" : "",
             sizes->batch / sizes->ranks, plural(sizes->batch / sizes->ranks), sizes->context);
    return MP_OK;
}

static int prepare(const struct mp_systems *systems, struct mp_predict_job *job,
                   struct mp_cluster **cluster, char *words, size_t size, struct mp_error *error) {
    static struct cli_job_settings settings;
    MP_TRY(cli_read_job_flags(&given.job, &settings, error));
    if (!given.job.trace && !given.job.loads)
        return mp_fail(error, MP_EINVAL, "--trace and --loads: give one of them");
    MP_TRY(cli_prepare_job(systems, &settings.all, job, error));
    MP_TRY(set_system(systems, job, error));
    MP_TRY(mp_suite_job_cluster(job, cluster, error));
    MP_TRY(choose_mode(*cluster, job, words, size, error));
    return mp_predict_job_check(job, *cluster, error);
}

/* ---- what came of it, in words and as an object ---- */

struct answer {
    const struct mp_place_loads *loads;
    const struct mp_decision *decision;
    const char *mode; /* what was chosen of it, in words; "": nothing */
    enum mp_place_format format;
};

static const double GIB = 1024.0 * 1024 * 1024;

static double percent(double part, double whole) {
    return whole > 0 ? 100 * part / whole : 0;
}

static double mean_run(const struct mp_decide_runs *runs) {
    return runs->runs ? (double)runs->on / (double)runs->runs : 0;
}

/* ---- what both say ---- */

static void print_heading(const struct answer *placed, FILE *out) {
    const struct mp_decision *decision = placed->decision;
    const struct mp_place_loads *loads = placed->loads;
    const struct mp_job *sizes = &loads->job->file.job;
    const struct mp_topology topology = mp_cluster_topology(loads->cluster);
    char workload[MP_TEXT_SIZE + 64], model[MP_MODEL_WORDS], gate[MP_GATE_WORDS];
    const int nodes = mp_topology_nodes(&topology);
    table_paragraph(out,
                    "Predicted, not measured: %s, %d rank%s on %d node%s; %s, %lld tokens per rank",
                    loads->job->cluster, loads->ranks, plural(loads->ranks), nodes, plural(nodes),
                    mp_job_serves(sizes) ? mp_job_mode(sizes) : "training",
                    (long long)mp_job_tokens(sizes) / loads->ranks);
    table_paragraph(out, "model: %s, gate %s", mp_job_model(sizes, model),
                    mp_job_gate(sizes, gate));
    table_paragraph(out, "loads: %s; %lld iteration%s",
                    mp_predict_job_workload(placed->loads->job, workload, sizeof workload),
                    (long long)loads->iterations, plural(loads->iterations));
    if (loads->of_run)
        table_paragraph(out,
                        "These are the sums of a whole run: its proportions, with the tokens of "
                        "the job (--set batch=, sequence=).  Whether they change while it runs "
                        "they do not say.");
    if (*placed->mode)
        table_paragraph(out, "%s", placed->mode);
    else if (!is_set("mode"))
        table_paragraph(out, "Serving is predicted with --set mode=prefill or mode=decode.");
    if (decision->in_sample)
        table_paragraph(out,
                        "There are no later loads: the placement is judged on those that it is "
                        "made of, so what it saves is an upper bound.");
    else
        table_paragraph(out,
                        "The placement is made of the first %lld iteration%s and judged on the "
                        "other %lld (--history).",
                        (long long)decision->history, plural(decision->history),
                        (long long)(decision->iterations - decision->history));
    if (decision->placed.steps > decision->history)
        table_paragraph(out, "The history was gone through again, %lld steps in all, until %s %s.",
                        (long long)decision->placed.steps, placed->loads->job->file.system->name,
                        decision->placed.changes ? "placed" : "was given up");
    fputc('\n', out);
}

struct row {
    const char *name;
    double before, after;
    int decimals;
};

static void print_rows(const struct row rows[], int count, FILE *out) {
    static const struct table_column head[] = {{"", .kind = TABLE_LEFT},
                                               {"contiguous", .kind = TABLE_RIGHT},
                                               {"placed", .kind = TABLE_RIGHT}};
    MP_AUTO(table) struct table table = table_of(head, 3);
    for (int i = 0; i < count && !table_add(&table, NULL, NULL); i++) {
        table_set(&table, 0, "%s", rows[i].name);
        table_set_number(&table, 1, rows[i].before, rows[i].decimals);
        table_set_number(&table, 2, rows[i].after, rows[i].decimals);
    }
    table_print(&table, out);
}

static void print_worth(const struct answer *placed, FILE *out) {
    const struct mp_decision *decision = placed->decision;
    const struct mp_place_time *before = &decision->before.time, *after = &decision->after.time;
    char worst[64];
    snprintf(worst, sizeof worst, "worst layer's (%d; %d)", decision->before.balance.worst_layer,
             decision->after.balance.worst_layer);
    const struct row rows[] = {
        {"fullest rank / mean", decision->before.balance.mean, decision->after.balance.mean, 3},
        {worst, decision->before.balance.worst, decision->after.balance.worst, 3},
        {"ms per iteration", 1e3 * before->mean, 1e3 * after->mean, 3},
        {"GiB on the fullest rank", before->memory.total / GIB, after->memory.total / GIB, 2},
        {"GB sent inside nodes", 1e-9 * decision->before.traffic.inside,
         1e-9 * decision->after.traffic.inside, 4},
        {"GB sent between nodes", 1e-9 * decision->before.traffic.between,
         1e-9 * decision->after.traffic.between, 4},
    };
    print_rows(rows, MP_LENGTH(rows), out);
    fputc('\n', out);
}

static void print_cost(const struct answer *placed, FILE *out) {
    const struct mp_decision *decision = placed->decision;
    const struct mp_placed *made = &decision->placed;
    const double gain = decision->before.time.mean - decision->after.time.mean;
    const double earning = ceil((decision->move_seconds + made->plan_seconds) / gain);
    const double limit = decision->after.time.memory.limit;
    table_paragraph(out,
                    "Memory: %d slots per rank and layer instead of %d, which is %.2f GiB of "
                    "parameters more on every rank.%s",
                    made->after.per_rank, made->before.per_rank,
                    (made->after.per_rank - made->before.per_rank) * (double)made->after.layers *
                        made->expert_bytes / GIB,
                    decision->after.time.memory.total > limit
                        ? decision->before.time.memory.total > limit
                              ? "  The job does not fit either way: smaller batches or more ranks "
                                "might."
                              : "  That does not fit."
                        : "");
    table_paragraph(out,
                    "Moves: %d expert%s, %.2f GB to the busiest rank, %.1f ms for which the others "
                    "wait once%s.",
                    made->moved, plural(made->moved), 1e-9 * made->move_bytes_most,
                    1e3 * decision->move_seconds,
                    placed->loads->job->file.system->capabilities & MP_SYSTEM_REPLICATES
                        ? " (none if an engine starts with the file)"
                        : "");
    table_paragraph(out, "Planning took %.1f ms of this machine.", 1e3 * made->plan_seconds);
    if (gain > 0 && decision->move_seconds > 0)
        table_paragraph(out,
                        "At %.3f ms saved in each, moves and planning are earned back after "
                        "%.0f iteration%s.",
                        1e3 * gain, earning, earning > 1 ? "s" : "");
}

static void print_placement(const struct answer *placed, FILE *out) {
    const struct mp_decision *decision = placed->decision;
    const double before = decision->before.time.mean, after = decision->after.time.mean;
    const char *name = placed->loads->job->file.system->name;
    print_heading(placed, out);
    print_worth(placed, out);
    if (decision->placed.changes == 0)
        table_paragraph(out,
                        "%s sees nothing to change in %lld step%s: the placement is its first one.",
                        name, (long long)decision->placed.steps, plural(decision->placed.steps));
    table_paragraph(out, "An iteration takes %.1f %% %s under %s's placement%s.",
                    fabs(percent(before - after, before)), after <= before ? "less" : "more", name,
                    decision->in_sample ? ", at best" : "");
    print_cost(placed, out);
    if (placed->loads->one_source)
        table_paragraph(out, "All ranks send alike in these loads, which counts in traffic.");
    if (given.output)
        table_paragraph(out, "Written to %s, %s.", given.output,
                        placed->format == MP_PLACE_SGLANG ? "for SGLang's --init-expert-location"
                        : placed->format == MP_PLACE_VLLM
                            ? "for vLLM Ascend's expert_map_path (vLLM itself reads none)"
                            : "as JSON");
    if (given.output && placed->format == MP_PLACE_SGLANG)
        table_paragraph(
            out,
            "Start the engine with --ep-num-redundant-experts %d; its model has to have "
            "the file's %d layers, of which %d in front are dense.",
            decision->placed.copies, placed->loads->dense_layers + placed->loads->layers,
            placed->loads->dense_layers);
    table_paragraph(out, "Whether it pays to keep placing: moeperf place --decide with the same "
                         "words.");
}

/* ---- the decision ---- */

static void print_verdict(const struct answer *placed, FILE *out) {
    const struct mp_decision *decision = placed->decision;
    const char *name = placed->loads->job->file.system->name;
    const double saves = 100 * decision->saves;
    const double before = decision->before.time.mean, after = decision->after.time.mean;
    const bool fits = decision->before.time.memory.total <= decision->before.time.memory.limit;
    const char *const why[] = {
        [MP_DECIDE_EVEN] = "no rank is late often enough to matter",
        [MP_DECIDE_MEMORY] = fits ? "the job does not fit into memory with it"
                                  : "the job does not fit into memory, with it or without",
        [MP_DECIDE_DOMINANT] = "one expert fills a rank wherever it is, and gets no copies",
        [MP_DECIDE_STALE] = "what is hot has changed when a placement arrives",
        [MP_DECIDE_NO_CHANGE] = "it sees nothing to change",
        [MP_DECIDE_COST] = "what it saves is not worth what it costs"};
    if (decision->reason == MP_DECIDE_SAVES)
        table_paragraph(out, "Turn %s on: it saves %.1f %% of an iteration%s.\n", name, saves,
                        decision->in_sample ? " at best, before its cost" : " after its cost");
    else
        table_paragraph(out, "Leave %s off: %s (%s %.1f %% of an iteration).", name,
                        why[decision->reason], saves < 0 ? "it costs" : "it would save",
                        fabs(saves));
    if (decision->reason != MP_DECIDE_MEMORY && saves < 100 * MP_DECIDE_WORTH &&
        before - after >= MP_DECIDE_WORTH * before)
        table_paragraph(out, "Placed once and left, it would save %.1f %%.",
                        percent(before - after, before));
    if (decision->reason != MP_DECIDE_SAVES)
        fputc('\n', out);
}

static void print_places(const struct mp_decide_place place[], int count, const char *what,
                         FILE *out) {
    const struct table_column head[] = {{"layer", .kind = TABLE_RIGHT},
                                        {what, .kind = TABLE_RIGHT},
                                        {"x mean", .kind = TABLE_RIGHT},
                                        {"% of\niterations", .kind = TABLE_RIGHT},
                                        {"longest\nrun", .kind = TABLE_RIGHT}};
    MP_AUTO(table) struct table table = table_of(head, 5);
    for (int i = 0; i < count && !table_add(&table, NULL, NULL); i++) {
        const struct mp_decide_runs *runs = &place[i].runs;
        table_set_number(&table, 0, place[i].layer, 0);
        table_set_number(&table, 1, place[i].which, 0);
        table_set_number(&table, 2, place[i].mean, 2);
        table_set_number(&table, 3, percent((double)runs->on, (double)runs->of), 0);
        table_set_number(&table, 4, (double)runs->longest, 0);
    }
    if (count)
        table_print(&table, out);
    fputc('\n', out);
}

static void print_experts(const struct mp_decision *decision, FILE *out) {
    table_paragraph(out, "Are experts uneven?  The fullest has %.2f times the mean of its layer.%s",
                    decision->expert_balance,
                    decision->hot.on ? "" : "  None ever has twice the mean.");
    if (decision->hot.on && decision->iterations == 1)
        table_paragraph(out, "Which stay hot?  One iteration can't say.");
    else if (decision->hot.on)
        table_paragraph(out,
                        "Which stay hot?  An expert that has twice the mean keeps it for %.1f "
                        "iterations at a time, %lld at most.",
                        mean_run(&decision->hot), (long long)decision->hot.longest);
    if (decision->padding)
        table_paragraph(out,
                        "In %d case%s an expert of a layer never gets a route and counts in no "
                        "mean.",
                        decision->padding, plural(decision->padding));
    print_places(decision->hottest, decision->hottest_count, "expert", out);
}

static void print_ranks(const struct mp_decision *decision, FILE *out) {
    table_paragraph(out,
                    "Does a rank become late by it?  The fullest has %.2f times the mean; in %.0f "
                    "%% of layers and iterations one has a tenth more than it.",
                    decision->rank_balance,
                    percent((double)decision->late_steps, (double)decision->late.of));
    if (decision->late.on && decision->iterations > 1)
        table_paragraph(out, "A late rank stays late for %.1f iterations at a time, %lld at most.",
                        mean_run(&decision->late), (long long)decision->late.longest);
    if (decision->idle)
        table_paragraph(out, "%d rank%s hold only experts without a route and count in no mean.",
                        decision->idle, plural(decision->idle));
    print_places(decision->latest, decision->latest_count, "rank", out);
}

static void print_dominant(const struct mp_decision *decision, FILE *out) {
    if (decision->late_steps == 0)
        return;
    table_paragraph(out,
                    "Would moving one expert only move the bottleneck?  In %.0f %% of the late "
                    "cases one expert alone is more than a rank's share: %s.\n",
                    percent((double)decision->dominated, (double)decision->late_steps),
                    decision->dominated * 2 <= decision->late_steps
                        ? "mostly no, other experts can move away from it"
                    : decision->replicates ? "yes, so it takes copies, which this system makes"
                                           : "yes, and this system makes no copies of it");
}

static void print_lags(const struct answer *placed, FILE *out) {
    const struct mp_decision *decision = placed->decision;
    const struct table_column head[] = {{"iterations\nlater", .kind = TABLE_RIGHT},
                                        {"fullest / mean\ncontiguous", .kind = TABLE_RIGHT},
                                        {"\nplaced", .kind = TABLE_RIGHT},
                                        {"imbalance taken\naway, %", .kind = TABLE_RIGHT},
                                        {"placements", .kind = TABLE_RIGHT}};
    if (decision->lag[0].samples == 0) {
        table_paragraph(out, "Would a placement still fit when it arrives?  That can't be said: "
                             "there are no loads after one.\n");
        return;
    }
    table_paragraph(out, "Would a placement still fit when it arrives?");
    MP_AUTO(table) struct table table = table_of(head, 5);
    for (int i = 0; i < MP_DECIDE_LAGS; i++) {
        const struct mp_decide_lag *lag = &decision->lag[i];
        if (!lag->samples || table_add(&table, NULL, NULL))
            break;
        table_set_number(&table, 0, mp_decide_lags[i], 0);
        table_set_number(&table, 1, lag->before, 3);
        table_set_number(&table, 2, lag->after, 3);
        table_set_number(&table, 3, 100 * mp_decide_benefit(lag), 0);
        table_set_number(&table, 4, (double)lag->samples, 0);
    }
    table_print(&table, out);
    if (decision->interval > 0)
        table_paragraph(out, "%s places every %.1f iterations.",
                        placed->loads->job->file.system->name, decision->interval);
    fputc('\n', out);
}

static void print_saving(const struct answer *placed, FILE *out) {
    const struct mp_decision *decision = placed->decision;
    table_paragraph(out, "What would it save?");
    print_worth(placed, out);
    if (decision->time_system.mean > 0)
        table_paragraph(out,
                        "With %s at work, moves included, an iteration takes %.3f ms; placed once "
                        "and left, %.3f; without, %.3f.",
                        placed->loads->job->file.system->name, 1e3 * decision->time_system.mean,
                        1e3 * decision->after.time.mean, 1e3 * decision->before.time.mean);
    print_cost(placed, out);
    fputc('\n', out);
}

enum { LINKS_SHOWN = 8 };

/* Pairs of nodes, those with most bytes first. */
static void print_links(const struct answer *placed, FILE *out) {
    const struct mp_place_traffic *before = &placed->decision->before.traffic;
    const struct mp_place_traffic *after = &placed->decision->after.traffic;
    const int nodes = before->nodes;
    struct row rows[LINKS_SHOWN + 2] = {
        {"stays on its rank", 1e-9 * before->own, 1e-9 * after->own, 4},
        {"inside nodes", 1e-9 * before->inside, 1e-9 * after->inside, 4}};
    char name[LINKS_SHOWN][32];
    int link[LINKS_SHOWN], count = 0;
    for (int i = 0; i < nodes * nodes; i++) {
        int at = count;
        if (i / nodes == i % nodes)
            continue;
        for (; at > 0 && before->bytes[link[at - 1]] + after->bytes[link[at - 1]] <
                             before->bytes[i] + after->bytes[i];
             at--)
            if (at < LINKS_SHOWN)
                link[at] = link[at - 1];
        if (at < LINKS_SHOWN)
            link[at] = i;
        count += count < LINKS_SHOWN;
    }
    for (int i = 0; i < count; i++) {
        snprintf(name[i], sizeof name[i], "node %d to %d", link[i] / nodes, link[i] % nodes);
        rows[i + 2] =
            (struct row){name[i], 1e-9 * before->bytes[link[i]], 1e-9 * after->bytes[link[i]], 4};
    }
    table_paragraph(out,
                    "What happens to traffic?  GB of tokens' rows to experts in an iteration, as "
                    "much comes back%s.",
                    nodes * (nodes - 1) > LINKS_SHOWN ? "; the fullest links (--json has all)"
                                                      : "");
    print_rows(rows, count + 2, out);
    if (placed->loads->one_source)
        table_paragraph(out, "All ranks send alike in these loads.");
}

static void print_decision(const struct answer *placed, FILE *out) {
    print_heading(placed, out);
    print_verdict(placed, out);
    print_experts(placed->decision, out);
    print_ranks(placed->decision, out);
    print_dominant(placed->decision, out);
    print_lags(placed, out);
    print_saving(placed, out);
    print_links(placed, out);
    if (given.output) {
        fputc('\n', out);
        table_paragraph(out, "The placement is in %s (%s).", given.output,
                        mp_place_format_name(placed->format));
    }
}

/* ---- the object ---- */

static json_t *pack_runs(const struct mp_decide_runs *runs) {
    return json_pack("{s:I, s:I, s:f, s:I}", "on", (json_int_t)runs->on, "runs",
                     (json_int_t)runs->runs, "mean_run", mean_run(runs), "longest_run",
                     (json_int_t)runs->longest);
}

static json_t *pack_places(const struct mp_decide_place place[], int count, const char *what) {
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(array, json_pack("{s:i, s:i, s:f, s:f, s:I}", "layer", place[i].layer,
                                               what, place[i].which, "times_mean", place[i].mean,
                                               "share_of_iterations",
                                               (double)place[i].runs.on / (double)place[i].runs.of,
                                               "longest_run", (json_int_t)place[i].runs.longest));
    return array;
}

static json_t *pack_lags(const struct mp_decision *decision) {
    json_t *array = json_array();
    for (int i = 0; i < MP_DECIDE_LAGS && decision->lag[i].samples; i++)
        json_array_append_new(
            array, json_pack("{s:i, s:I, s:f, s:f, s:f}", "iterations_later", mp_decide_lags[i],
                             "placements", (json_int_t)decision->lag[i].samples, "before",
                             decision->lag[i].before, "after", decision->lag[i].after, "benefit",
                             mp_decide_benefit(&decision->lag[i])));
    return array;
}

static json_t *pack_side(const struct mp_decide_side *side, int layers) {
    const struct mp_place_balance *balance = &side->balance;
    const struct mp_place_time *time = &side->time;
    const struct mp_place_traffic *traffic = &side->traffic;
    json_t *links = json_array(), *by_layer = json_array();
    for (int i = 0; i < traffic->nodes * traffic->nodes; i++)
        json_array_append_new(links,
                              json_pack("{s:i, s:i, s:f}", "from_node", i / traffic->nodes,
                                        "to_node", i % traffic->nodes, "bytes", traffic->bytes[i]));
    for (int i = 0; i < layers; i++)
        json_array_append_new(by_layer, number_value(balance->layer[i]));
    return json_pack("{s:o, s:o, s:i, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}",
                     "rank_max_over_mean", number_value(balance->mean), "worst_layer_max_over_mean",
                     number_value(balance->worst), "worst_layer", balance->worst_layer, "by_layer",
                     by_layer, "seconds_mean", time->mean, "seconds_median", time->median,
                     "memory_bytes", time->memory.total, "memory_limit_bytes", time->memory.limit,
                     "bytes_on_rank", traffic->own, "bytes_inside_nodes", traffic->inside,
                     "bytes_between_nodes", traffic->between, "links", links);
}

static json_t *pack_cost(const struct mp_decision *decision) {
    const struct mp_placed *made = &decision->placed;
    return json_pack("{s:i, s:i, s:i, s:f, s:f, s:i, s:f, s:f}", "slots_per_rank",
                     made->after.per_rank, "slots_per_rank_before", made->before.per_rank,
                     "redundant_experts", made->copies, "expert_bytes", made->expert_bytes,
                     "move_bytes_busiest_rank", made->move_bytes_most, "moved_experts", made->moved,
                     "move_seconds", decision->move_seconds, "plan_seconds", made->plan_seconds);
}

static json_t *pack_placed(const struct answer *placed) {
    const struct mp_decision *decision = placed->decision;
    const struct mp_place_loads *loads = placed->loads;
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:b, s:b, s:b}", "kind",
                  "placement", "system", placed->loads->job->file.system->name, "mode",
                  mp_job_mode(&placed->loads->job->file.job), "loads", loads->source, "ranks",
                  loads->ranks, "layers", loads->layers, "experts", loads->experts, "iterations",
                  (json_int_t)loads->iterations, "history", (json_int_t)decision->history, "steps",
                  (json_int_t)decision->placed.steps, "judged_on_history", decision->in_sample,
                  "sums_of_a_run", loads->of_run, "sources_alike", loads->one_source);
    json_t *asked = json_pack(
        "{s:b, s:s, s:f, s:f, s:o, s:o, s:f, s:f, s:o, s:o, s:f, s:b, s:i, s:i, s:o, s:f}",
        "turn_on", decision->reason == MP_DECIDE_SAVES, "reason",
        mp_decide_reason_name(decision->reason), "saves", decision->saves, "expert_max_over_mean",
        decision->expert_balance, "hot", pack_runs(&decision->hot), "hottest",
        pack_places(decision->hottest, decision->hottest_count, "expert"), "rank_max_over_mean",
        decision->rank_balance, "late_share",
        decision->late.of ? (double)decision->late_steps / (double)decision->late.of : 0.0, "late",
        pack_runs(&decision->late), "latest",
        pack_places(decision->latest, decision->latest_count, "rank"), "dominated_share",
        decision->late_steps ? (double)decision->dominated / (double)decision->late_steps : 0.0,
        "replicates", decision->replicates, "idle_ranks", decision->idle, "experts_without_routes",
        decision->padding, "lags", pack_lags(decision), "interval", decision->interval);
    json_object_set_new(object, "decision", asked);
    json_object_set_new(object, "before", pack_side(&decision->before, loads->layers));
    json_object_set_new(object, "after", pack_side(&decision->after, loads->layers));
    if (decision->time_system.mean > 0)
        json_object_set_new(object, "at_work_seconds_mean", json_real(decision->time_system.mean));
    json_object_set_new(object, "cost", pack_cost(decision));
    return object;
}

/* ---- the command ---- */

static int find_format(enum mp_place_format *format, struct mp_error *error) {
    *format = MP_PLACE_JSON;
    if (!given.kind)
        return MP_OK;
    if (!given.output)
        return mp_fail(error, MP_EINVAL, "--as says how to write; -o OUT says where to");
    for (*format = 0; *format < MP_PLACE_FORMATS; ++*format)
        if (!strcmp(given.kind, mp_place_format_name(*format)))
            return MP_OK;
    return mp_fail(error, MP_EINVAL, "--as %.40s: should be json, sglang or vllm", given.kind);
}

struct watch {
    struct mp_progress progress;
    const struct mp_decision *decision; /* what is known of it so far */
    double started;
    int done;
};

/* Both placements on the iterations that are judged, the way from one to the other, and the system
 * at work from the first one on. */
static void draw(void *context) {
    struct watch *watch = context;
    const struct mp_decision *decision = watch->decision;
    const int64_t all = decision->in_sample ? 2 * decision->iterations
                                            : 3 * decision->iterations - 2 * decision->history;
    cli_draw_share(&watch->progress, "iterations", ++watch->done, (int)all + 1, watch->started);
}

static int place_with(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                      const char *mode, double share, enum mp_place_format format,
                      struct mp_error *error) {
    MP_AUTO(place_loads) struct mp_place_loads loads = {0};
    MP_AUTO(decision) struct mp_decision decision = {0};
    const struct answer placed = {&loads, &decision, mode, format};
    char made_by[MP_TEXT_SIZE];
    struct watch watch = {.decision = &decision, .started = mp_seconds_now()};
    MP_TRY(mp_place_loads_read(job, cluster, &loads, error));
    mp_progress_begin(&watch.progress, stderr);
    loads.predicted = draw;
    loads.context = &watch;
    const int code = mp_decide(&loads, share, &decision, error);
    mp_progress_end(&watch.progress);
    MP_TRY(code);
    snprintf(made_by, sizeof made_by, "moeperf place, system %s, loads %.1000s",
             job->file.system->name, loads.source);
    if (given.output)
        MP_TRY(mp_place_write(given.output, format, &decision.placed.after, loads.dense_layers,
                              made_by, error));
    FILE *out = given.output ? cli_beside(given.output) : stdout;
    if (given.json)
        return cli_print_json(pack_placed(&placed), error);
    if (given.decide)
        print_decision(&placed, out);
    else
        print_placement(&placed, out);
    return MP_OK;
}

static int place(const struct cli_call *call, struct mp_error *error) {
    MP_AUTO(predict_job) struct mp_predict_job job = {0};
    MP_AUTO(cluster) struct mp_cluster *cluster = NULL;
    enum mp_place_format format;
    double history = 50; /* % */
    char mode[512];
    if (given.job.loads && !given.job.iterations)
        given.job.iterations = 30;
    if (given.history && (!mp_real_number(given.history, "%", 0, 100, &history) || history == 0))
        return mp_fail(error, MP_EINVAL,
                       "--history %.40s: should be a share of the iterations, above 0 up to 100%%",
                       given.history);
    MP_TRY(find_format(&format, error));
    MP_TRY(mp_predict_job_create(&job, error));
    MP_TRY(prepare(call->systems, &job, &cluster, mode, sizeof mode, error));
    return place_with(&job, cluster, mode, history / 100, format, error);
}

const struct cli_command cli_place = {
    "place", "places experts by a system's planner, and says whether that pays", place,
    .usage = &usage};
