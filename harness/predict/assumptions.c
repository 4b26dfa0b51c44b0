/* What a prediction rests on beside what others published or measured. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "harness/predict/loads_wanted.h"

struct teller {
    mp_predict_assumption *each;
    void *context;
    bool has_efficiency; /* its entries share an origin: one line for all */
    bool efficiency_now; /* which of the two rounds */
};

static void __attribute__((format(printf, 2, 3)))
tell(const struct teller *teller, const char *format, ...) {
    char line[2 * MP_TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    teller->each(teller->context, line);
}

/* The value of an option of the job's system; NULL: it has none of this name. */
static const char *option_of(const struct mp_predict_job *job, const char *name,
                             char value[MP_TEXT_SIZE]) {
    const struct mp_option *rows = job->file.system->options;
    const struct mp_option *option = rows ? mp_options_find(rows, name) : NULL;
    return option ? mp_options_format(option, job->file.system_options, value, MP_TEXT_SIZE) : NULL;
}

static bool has_nodes(const struct mp_predict_job *job) {
    struct mp_topology topology = mp_job_topology(&job->file.job, job->file.job.ranks);
    return mp_topology_nodes(&topology) > 1;
}

bool mp_predict_loads_are_served(const char *source) {
    return strstr(source, "(sglang)") || strstr(source, "(vllm-eplb)");
}

static void tell_loads(const struct mp_predict_job *job, const struct mp_trace_info *info,
                       const struct teller *teller) {
    char line[2 * MP_TEXT_SIZE];
    const char *source = info->source ? info->source : "";
    const bool is_served = mp_predict_loads_are_served(source);
    tell(teller, "loads: %.2000s%s%.2000s%s", source, info->notes && *info->notes ? "; " : "",
         info->notes ? info->notes : "",
         is_served && !mp_job_serves(&job->file.job)
             ? "; a serving engine recorded them, and training is predicted (--set mode=prefill or "
               "mode=decode)"
             : "");
    if (info->of_run) {
        tell(teller,
             "loads: sums of a whole run, which say nothing of a step: proportions are the "
             "run's, a step's tokens the job's (%d x %d, unless set)",
             job->file.job.batch, mp_job_step_tokens(&job->file.job));
        if (predict_loads_model(&job->file.job, line, sizeof line))
            teller->each(teller->context, line);
    }
    if (info->shape.top_k == 0)
        tell(teller, "loads: they don't say how many experts a token takes; %d, as the job's gate",
             mp_job_top_k(&job->file.job));
    if (info->shape.micro_batches == 1 && job->options.micro_batches > 1)
        tell(teller, "loads: those of an iteration stand for each of its %d micro-batches",
             job->options.micro_batches);
}

/* The exchange in several rounds that rows may take, as it is named: the system's own (an option
 * `exchange`), or the job's; false: there is none. */
static bool find_rounds(const struct mp_predict_job *job, char *name, size_t size) {
    const struct mp_system *system = job->file.system;
    enum mp_exchange_kind kind = mp_system_exchange(system, job->file.job.exchange);
    char value[MP_TEXT_SIZE];
    const char *own = option_of(job, "exchange", value);
    if (own && strcmp(own, mp_exchange_name(MP_EXCHANGE_FLAT)) != 0) {
        snprintf(name, size, "%s exchange %.32s", system->name, own);
        return true;
    }
    snprintf(name, size, "exchange %s", mp_exchange_name(kind));
    return mp_exchange_of(kind)->rounds > 1;
}

/* What such an exchange is for. */
static void tell_exchange(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                          bool has_tokens, const struct teller *teller) {
    char name[128];
    const struct mp_exchange *exchange =
        mp_exchange_of(mp_system_exchange(job->file.system, job->file.job.exchange));
    if (!find_rounds(job, name, sizeof name))
        return;
    for (int level = 1; level < cluster->levels; level++)
        if (!(cluster->level[level].message_cost.value > 0))
            tell(teller,
                 "%s: messages of level %s cost nothing but their bytes and one latency a round "
                 "(levels.%s.message-cost is not given), so fewer and larger ones save nothing "
                 "there",
                 name, cluster->level[level].name, cluster->level[level].name);
    if (exchange->deduplicates && !has_tokens)
        tell(teller,
             "exchange %s: loads don't say which experts tokens take together: each token's are "
             "drawn with its rank's counts as probabilities (conditional Poisson sampling)",
             exchange->name);
}

/* What a system looks at, or changes, and loads don't say. */
static void tell_system(const struct mp_predict_job *job, bool has_tokens,
                        const struct teller *teller) {
    const struct mp_system *system = job->file.system;
    char text[MP_TEXT_SIZE];
    const char *value;
    if ((system->capabilities & MP_SYSTEM_USES_TRANSITIONS) && !has_tokens)
        tell(teller,
             "%s: loads don't say which experts tokens take one after the other: those of "
             "neighbouring layers are taken for independent",
             system->name);
    /* Of shards, loads are counts. */
    if ((value = option_of(job, "slots", text)) && !strcmp(value, "as-released") &&
        (!has_tokens || mp_job_shards(&job->file.job) > 1))
        tell(teller,
             "%s slots as-released: counts don't say which choices are first ones: what exceeds a "
             "capacity is dropped, and no route is overwritten",
             system->name);
}

/* A gate that the system changes: loads don't say what it would choose, and know of no loss. */
static void tell_gate(const struct mp_predict_job *job, const struct teller *teller) {
    const struct mp_system *system = job->file.system;
    char text[MP_TEXT_SIZE];
    const char *value;
    if (!has_nodes(job))
        return;
    if ((value = option_of(job, "topology-gate", text)) && !strcmp(value, "yes"))
        tell(teller,
             "%s topology-gate: loads don't say what tokens choose next: half of the routes out of "
             "a node are first choices; where they exceed the limit, tokens choose inside as if "
             "drawn with their rank's routes there as weights, and those that leave in proportion "
             "to its routes outside",
             system->name);
    if ((value = option_of(job, "pull", text)))
        tell(teller,
             "%s pull: loads don't know of the loss: a rank's share of routes inside its node is "
             "taken to have come %s of the way to the target, from the first iteration on",
             system->name, value);
}

/* The efficiency table comes before all others: none weighs as much. */
static void tell_quantity(void *context, const char *place, const char *unit,
                          const struct mp_quantity *quantity) {
    static const char efficiency[] = "device.efficiency";
    struct teller *teller = context;
    bool of_efficiency = !strncmp(place, efficiency, sizeof efficiency - 1);
    if (!quantity->assumed || of_efficiency != teller->efficiency_now)
        return;
    if (of_efficiency && teller->has_efficiency)
        return;
    teller->has_efficiency |= of_efficiency;
    if (of_efficiency)
        tell(teller, "cluster: %s: %.2000s", efficiency, quantity->origin);
    else if (quantity->word)
        tell(teller, "cluster: %s %s: %.2000s", place, quantity->word, quantity->origin);
    else
        tell(teller, "cluster: %s %g%s%s: %.2000s", place, quantity->value, *unit ? " " : "", unit,
             quantity->origin);
}

static int tell_options(const struct mp_predict_job *job, const struct teller *teller,
                        struct mp_error *error) {
    struct mp_predict_options defaults = {0};
    char value[64], usual[64];
    MP_TRY(mp_options_set_defaults(mp_predict_options_table, &defaults, error));
    for (const struct mp_option *row = mp_predict_options_table; row->name; row++) {
        mp_options_format(row, &job->options, value, sizeof value);
        mp_options_format(row, &defaults, usual, sizeof usual);
        if (strcmp(value, usual) != 0 || !mp_predict_option_counts(&job->file.job, row->name))
            continue;
        tell(teller, "predict.%s %s%s%s (default): %s", row->name, value, *row->unit ? " " : "",
             row->unit, row->help);
    }
    return MP_OK;
}

int mp_predict_job_assumptions(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                               mp_predict_assumption *each, void *context, struct mp_error *error) {
    struct teller teller = {.each = each, .context = context};
    struct mp_trace_stream *stream;
    MP_TRY(mp_predict_job_loads(job, cluster, &stream, error));
    tell_loads(job, mp_trace_stream_info(stream), &teller);
    tell_gate(job, &teller);
    bool has_tokens = mp_trace_stream_info(stream)->routes;
    mp_trace_stream_destroy(stream);
    tell_exchange(job, cluster, has_tokens, &teller);
    tell_system(job, has_tokens, &teller);
    teller.efficiency_now = true;
    mp_cluster_each(cluster, tell_quantity, &teller);
    MP_TRY(tell_options(job, &teller, error));
    teller.efficiency_now = false;
    mp_cluster_each(cluster, tell_quantity, &teller);
    return MP_OK;
}
