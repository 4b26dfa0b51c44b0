/* What a prediction rests on beside what others published or measured. */
#include <stdio.h>
#include <string.h>

#include "harness/predict/loads_wanted.h"

enum { LINE_SIZE = 2 * MP_TEXT_SIZE };

struct teller {
    mp_predict_assumption *each;
    void *context;
    bool has_efficiency; /* its entries share an origin: one line for all */
    bool efficiency_now; /* which of the two rounds */
};

static void tell_loads(const struct mp_predict_job *job, const struct mp_trace_info *info,
                       const struct teller *teller) {
    char line[LINE_SIZE];
    snprintf(line, sizeof line, "loads: %.2000s%s%.2000s", info->source ? info->source : "",
             info->notes && *info->notes ? "; " : "", info->notes ? info->notes : "");
    teller->each(teller->context, line);
    if (info->of_run) {
        snprintf(line, sizeof line,
                 "loads: sums of a whole run, which say nothing of a step: proportions are the "
                 "run's, a step's tokens the job's (%d x %d, unless set)",
                 job->file.job.batch, mp_job_step_tokens(&job->file.job));
        teller->each(teller->context, line);
        if (predict_loads_model(&job->file.job, line, sizeof line))
            teller->each(teller->context, line);
    }
    if (info->shape.top_k == 0) {
        snprintf(line, sizeof line,
                 "loads: they don't say how many experts a token takes; %d, as the job's gate",
                 mp_job_top_k(&job->file.job));
        teller->each(teller->context, line);
    }
    if (info->shape.micro_batches == 1 && job->options.micro_batches > 1) {
        snprintf(line, sizeof line,
                 "loads: those of an iteration stand for each of its %d micro-batches",
                 job->options.micro_batches);
        teller->each(teller->context, line);
    }
}

/* The exchange in several rounds that rows may take, as it is named: the system's own (an option
 * `exchange`), or the job's; false: there is none. */
static bool find_rounds(const struct mp_predict_job *job, char *name, size_t size) {
    const struct mp_system *system = job->file.system;
    const struct mp_option *own =
        system->options ? mp_options_find(system->options, "exchange") : NULL;
    enum mp_exchange_kind kind = mp_system_exchange(system, job->file.job.exchange);
    char value[32];
    if (own && strcmp(mp_options_format(own, job->file.system_options, value, sizeof value),
                      mp_exchange_name(MP_EXCHANGE_FLAT)) != 0) {
        snprintf(name, size, "%s exchange %s", system->name, value);
        return true;
    }
    snprintf(name, size, "exchange %s", mp_exchange_name(kind));
    return mp_exchange_of(kind)->rounds > 1;
}

/* What such an exchange is for. */
static void tell_exchange(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                          bool has_tokens, const struct teller *teller) {
    char line[LINE_SIZE], name[128];
    const struct mp_exchange *exchange =
        mp_exchange_of(mp_system_exchange(job->file.system, job->file.job.exchange));
    if (!find_rounds(job, name, sizeof name))
        return;
    for (int level = 1; level < cluster->levels; level++) {
        if (mp_cluster_message_cost(cluster, level) > 0)
            continue;
        snprintf(line, sizeof line,
                 "%s: messages of level %s cost nothing but their bytes and one latency a round "
                 "(levels.%s.message-cost is not given), so fewer and larger ones save nothing "
                 "there",
                 name, cluster->level[level].name, cluster->level[level].name);
        teller->each(teller->context, line);
    }
    if (!exchange->deduplicates || has_tokens)
        return;
    snprintf(line, sizeof line,
             "exchange %s: loads don't say which experts tokens take together: each token's are "
             "drawn with its rank's counts as probabilities (conditional Poisson sampling)",
             exchange->name);
    teller->each(teller->context, line);
}

/* A system that looks at transitions, of loads that don't have them. */
static void tell_transitions(const struct mp_predict_job *job, bool has_tokens,
                             const struct teller *teller) {
    const struct mp_system *system = job->file.system;
    char line[LINE_SIZE];
    if (!(system->capabilities & MP_SYSTEM_USES_TRANSITIONS) || has_tokens)
        return;
    snprintf(line, sizeof line,
             "%s: loads don't say which experts tokens take one after the other: those of "
             "neighbouring layers are taken for independent",
             system->name);
    teller->each(teller->context, line);
}

/* Slots that depend on which choices are first ones, of loads that don't say it, or of shards,
 * whose loads are counts. */
static void tell_slots(const struct mp_predict_job *job, bool has_tokens,
                       const struct teller *teller) {
    const struct mp_system *system = job->file.system;
    const struct mp_option *slots =
        system->options ? mp_options_find(system->options, "slots") : NULL;
    char line[LINE_SIZE], value[16];
    if (!slots || (has_tokens && mp_job_shards(&job->file.job) == 1) ||
        strcmp(mp_options_format(slots, job->file.system_options, value, sizeof value),
               "as-released") != 0)
        return;
    snprintf(line, sizeof line,
             "%s slots as-released: counts don't say which choices are first ones: what exceeds a "
             "capacity is dropped, and no route is overwritten",
             system->name);
    teller->each(teller->context, line);
}

/* A gate that the system changes: loads don't say what it would choose. */
static void tell_gate(const struct mp_predict_job *job, const struct teller *teller) {
    const struct mp_system *system = job->file.system;
    const struct mp_option *limit =
        system->options ? mp_options_find(system->options, "topology-gate") : NULL;
    struct mp_topology topology = mp_job_topology(&job->file.job, job->file.job.ranks);
    char line[LINE_SIZE], value[16];
    if (!limit || mp_topology_nodes(&topology) < 2 ||
        strcmp(mp_options_format(limit, job->file.system_options, value, sizeof value), "yes") != 0)
        return;
    snprintf(line, sizeof line,
             "%s topology-gate: loads don't say what tokens choose next: half of the routes out of "
             "a node are first choices; where they exceed the limit, tokens choose inside as if "
             "drawn with their rank's routes there as weights, and those that leave in proportion "
             "to its routes outside",
             system->name);
    teller->each(teller->context, line);
}

/* A loss that knows the topology: loads were made without it. */
static void tell_pull(const struct mp_predict_job *job, const struct teller *teller) {
    const struct mp_system *system = job->file.system;
    const struct mp_option *pull =
        system->options ? mp_options_find(system->options, "pull") : NULL;
    struct mp_topology topology = mp_job_topology(&job->file.job, job->file.job.ranks);
    char line[LINE_SIZE], value[MP_TEXT_SIZE];
    if (!pull || mp_topology_nodes(&topology) < 2)
        return;
    snprintf(line, sizeof line,
             "%s pull: loads don't know of the loss: a rank's share of routes inside its node is "
             "taken to have come %s of the way to the target, from the first iteration on",
             system->name, mp_options_format(pull, job->file.system_options, value, sizeof value));
    teller->each(teller->context, line);
}

/* The efficiency table comes before all others: none weighs as much. */
static void tell_quantity(void *context, const char *place, const char *unit,
                          const struct mp_quantity *quantity) {
    static const char efficiency[] = "device.efficiency";
    struct teller *teller = context;
    char line[LINE_SIZE];
    bool of_efficiency = !strncmp(place, efficiency, sizeof efficiency - 1);
    if (!quantity->assumed || of_efficiency != teller->efficiency_now)
        return;
    if (of_efficiency && teller->has_efficiency)
        return;
    teller->has_efficiency |= of_efficiency;
    if (of_efficiency)
        snprintf(line, sizeof line, "cluster: %s: %.2000s", efficiency, quantity->origin);
    else if (quantity->word)
        snprintf(line, sizeof line, "cluster: %s %s: %.2000s", place, quantity->word,
                 quantity->origin);
    else
        snprintf(line, sizeof line, "cluster: %s %g%s%s: %.2000s", place, quantity->value,
                 *unit ? " " : "", unit, quantity->origin);
    teller->each(teller->context, line);
}

static int tell_options(const struct mp_predict_job *job, const struct teller *teller,
                        struct mp_error *error) {
    struct mp_predict_options defaults = {0};
    char line[LINE_SIZE], value[64], usual[64];
    int code = mp_options_set_defaults(mp_predict_options_table, &defaults, error);
    for (const struct mp_option *row = mp_predict_options_table; row->name && !code; row++) {
        mp_options_format(row, &job->options, value, sizeof value);
        mp_options_format(row, &defaults, usual, sizeof usual);
        if (strcmp(value, usual) != 0)
            continue;
        snprintf(line, sizeof line, "predict.%s %s%s%s (default): %s", row->name, value,
                 *row->unit ? " " : "", row->unit, row->help);
        teller->each(teller->context, line);
    }
    return code;
}

int mp_predict_job_assumptions(const struct mp_predict_job *job, const struct mp_cluster *cluster,
                               mp_predict_assumption *each, void *context, struct mp_error *error) {
    struct teller teller = {.each = each, .context = context};
    struct mp_trace_stream *stream;
    int code = mp_predict_job_loads(job, cluster, &stream, error);
    if (code)
        return code;
    tell_loads(job, mp_trace_stream_info(stream), &teller);
    tell_gate(job, &teller);
    tell_pull(job, &teller);
    bool has_tokens = mp_trace_stream_info(stream)->routes;
    mp_trace_stream_destroy(stream);
    tell_exchange(job, cluster, has_tokens, &teller);
    tell_transitions(job, has_tokens, &teller);
    tell_slots(job, has_tokens, &teller);
    teller.efficiency_now = true;
    mp_cluster_each(cluster, tell_quantity, &teller);
    code = tell_options(job, &teller, error);
    teller.efficiency_now = false;
    if (!code)
        mp_cluster_each(cluster, tell_quantity, &teller);
    return code;
}
