/* What jobs have to be, and the loads that they give: see job.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "reference/device/device.h"
#include "reference/model/replay.h"
#include "reference/trainer/inject.h"
#include "reference/trainer/job.h"
#include "reference/trainer/sizes.h"

/* A gate that takes any of several numbers of experts, this one among them, and leaves weights open
 * if that is wanted; NULL: none does. */
static const struct mp_gate_kind *flexible_gate(int top_k, bool open_weights) {
    for (int i = 0; mp_gate_kinds[i]; i++) {
        const struct mp_gate_kind *kind = mp_gate_kinds[i];
        if (kind->least < kind->most && kind->least <= top_k && top_k <= kind->most &&
            (!open_weights || kind->weights == MP_WEIGHTS_EITHER))
            return kind;
    }
    return NULL;
}

static int check_choices(const struct mp_job *job, struct mp_error *error) {
    const struct mp_gate_kind *gate = mp_job_gate_kind(job);
    int top_k = mp_job_top_k(job);
    if (top_k < 1 || top_k > MP_CHOICES_LIMIT)
        return mp_fail(error, MP_EINVAL, "top-k: %d experts of a token; 1 to %d can be chosen",
                       top_k, MP_CHOICES_LIMIT);
    if (top_k >= gate->least && top_k <= gate->most)
        return MP_OK;
    const struct mp_gate_kind *other = flexible_gate(top_k, false);
    return mp_fail(error, MP_EINVAL,
                   "top-k: gate %s sends a token to %d expert%s, not to %d; gate %s takes %d to %d",
                   gate->name, gate->usual, gate->usual == 1 ? "" : "s", top_k, other->name,
                   other->least, other->most);
}

static int check_gate(const struct mp_job *job, struct mp_error *error) {
    const struct mp_gate_kind *gate = mp_job_gate_kind(job);
    int top_k = mp_job_top_k(job);
    MP_TRY(check_choices(job, error));
    if (job->experts < top_k)
        return mp_fail(error, MP_EINVAL,
                       "experts: the %s gate sends a token to %d experts, there %s only %d",
                       gate->name, top_k, job->experts == 1 ? "is" : "are", job->experts);
    struct mp_gate_rule rule;
    MP_TRY(mp_job_gate_rule(job, &rule, error));
    bool wanted = job->renormalise == MP_RENORMALISE_YES;
    if (job->renormalise != MP_RENORMALISE_AUTO && rule.renormalise != wanted)
        return mp_fail(error, MP_EINVAL,
                       "renormalise: gate %s has it %s; gate %s with top-k %d takes either",
                       gate->name, wanted ? "off" : "on", flexible_gate(top_k, true)->name, top_k);
    return MP_OK;
}

/* `code`: what a fault is, the job's or its system's. */
static int check_shards(const struct mp_job *job, int code, struct mp_error *error) {
    if (job->expert_width % mp_job_shards(job) == 0)
        return MP_OK;
    return mp_fail(error, code,
                   "expert-shards: expert-width %d can't be cut evenly into %d shards; take a "
                   "divisor of it",
                   job->expert_width, mp_job_shards(job));
}

static int check_shape(const struct mp_job_file *file, struct mp_error *error) {
    const struct mp_job *job = &file->job;
    if (job->batch % job->ranks)
        return mp_fail(error, MP_EINVAL,
                       "batch: %d sequences can't be divided evenly over %d ranks; take a multiple "
                       "of ranks",
                       job->batch, job->ranks);
    if (job->width % job->heads)
        return mp_fail(error, MP_EINVAL,
                       "width: %d can't be divided evenly over %d heads; take a multiple of heads",
                       job->width, job->heads);
    MP_TRY(check_shards(job, MP_EINVAL, error));
    return check_gate(job, error);
}

/* A token goes to top-k different experts, so one expert takes at most one route of each token. */
static int check_skew(const struct mp_job *job, struct mp_error *error) {
    int top_k = mp_job_top_k(job), others = job->experts - job->skew_experts;
    if (others < 0)
        return mp_fail(error, MP_EINVAL, "skew-experts: %d are more than the %d experts",
                       job->skew_experts, job->experts);
    double most = job->skew_experts < top_k ? (double)job->skew_experts / top_k : 1;
    double least = others > 0 && others < top_k ? 1 - (double)others / top_k : 0;
    if (job->skew_share < least || job->skew_share > most)
        return mp_fail(error, MP_EINVAL,
                       "skew-share: %g is outside %g .. %g, all that %d of %d experts can get when "
                       "a token goes to %d different ones",
                       job->skew_share, least, most, job->skew_experts, job->experts, top_k);
    return MP_OK;
}

/* Reads one row "9,1,0" of the load; `*at` moves behind it and its ';'.  weight [experts] may be
 * NULL. */
static int read_load_row(const struct mp_job *job, int row, const char **at, double weight[],
                         struct mp_error *error) {
    long long sum = 0, largest = 0;
    int columns = 0;
    for (bool is_last = false; !is_last; columns++) {
        char *end;
        errno = 0;
        long long routes = strtoll(*at, &end, 10);
        is_last = *end == ';' || *end == '\0';
        if (end == *at || errno || routes < 0 || routes > UINT32_MAX || (!is_last && *end != ','))
            return mp_fail(error, MP_EINVAL,
                           "load: row %d, expert %d: \"%.20s\" should begin with a number of "
                           "routes 0 .. 4294967295, then ',' or ';'",
                           row, columns, *at);
        if (weight && columns < job->experts)
            weight[columns] = (double)routes;
        sum += routes;
        largest = routes > largest ? routes : largest;
        *at = *end ? end + 1 : end;
    }
    if (columns != job->experts)
        return mp_fail(error, MP_EINVAL, "load: row %d has %d numbers for %d experts", row, columns,
                       job->experts);
    if (sum < 1)
        return mp_fail(error, MP_EINVAL, "load: row %d has no routes at all", row);
    if (largest * mp_job_top_k(job) > sum)
        return mp_fail(error, MP_EINVAL,
                       "load: row %d gives one expert %lld of %lld routes; it can take at most one "
                       "in %d when a token goes to %d different experts",
                       row, largest, sum, mp_job_top_k(job), mp_job_top_k(job));
    return MP_OK;
}

static int check_load(const struct mp_job *job, struct mp_error *error) {
    const char *at = job->load;
    int rows = 0;
    if (!*at)
        return mp_fail(error, MP_EINVAL, "load: not given, but routing is load");
    for (; *at; rows++) {
        MP_TRY(read_load_row(job, rows, &at, NULL, error));
    }
    if (rows != job->ranks)
        return mp_fail(error, MP_EINVAL, "load: %d rows for %d ranks; give one per source rank",
                       rows, job->ranks);
    return MP_OK;
}

int mp_job_replay(const struct mp_job *job, int rank, int64_t routes, uint32_t count[],
                  struct mp_error *error) {
    bool skewed = job->routing == MP_ROUTING_SKEWED, given = job->routing == MP_ROUTING_LOAD;
    MP_AUTO(memory) double *weight = NULL;
    const char *at = job->load;
    MP_TRY(MP_NEW(weight, job->experts, error));
    for (int r = 0; given && r <= rank; r++)
        MP_TRY(read_load_row(job, r, &at, weight, error));
    if (!given)
        mp_replay_skew(job->experts, skewed ? job->skew_experts : job->experts, job->skew_share,
                       weight);
    return mp_replay_apportion(job->experts, weight, routes, count, error);
}

static int check_inject(const struct mp_job *job, struct mp_error *error) {
    struct mp_inject inject;
    MP_TRY(mp_inject_parse(job->inject, &inject, error));
    if (inject.rank >= job->ranks)
        return mp_fail(error, MP_EINVAL, "inject: rank %d of a job with %d ranks", inject.rank,
                       job->ranks);
    return MP_OK;
}

static int check_device(const struct mp_job *job, struct mp_error *error) {
    if (job->device == MP_DEVICE_CUDA)
        return MP_OK;
    if (job->precision == MP_PRECISION_BF16)
        return mp_fail(error, MP_EINVAL,
                       "precision: bf16 needs device cuda; the processor computes in fp32");
    if (job->transport == MP_TRANSPORT_NCCL)
        return mp_fail(error, MP_EINVAL,
                       "transport: nccl needs device cuda; between processors it is mpi");
    return MP_OK;
}

/* What only training has to do with. */
static int check_serving(const struct mp_job *job, struct mp_error *error) {
    const char *mode = mp_job_mode(job);
    if (!mp_job_serves(job))
        return MP_OK;
    if (job->device == MP_DEVICE_CUDA)
        return mp_fail(error, MP_EINVAL,
                       "mode: %s needs device cpu; attention with a cache has no kernels for GPUs, "
                       "which predictions do without",
                       mode);
    if (job->validate_every > 0)
        return mp_fail(error, MP_EINVAL,
                       "validate-every: %d, but mode %s changes no parameters; take 0, or mode "
                       "train",
                       job->validate_every, mode);
    if (*job->checkpoint)
        return mp_fail(error, MP_EINVAL,
                       "checkpoint: mode %s changes no parameters that could be saved; leave it "
                       "out (restore names a checkpoint to serve), or take mode train",
                       mode);
    if (job->target_loss > 0)
        return mp_fail(error, MP_EINVAL,
                       "target-loss: %g, but mode %s does not train; take 0, or mode train",
                       job->target_loss, mode);
    return MP_OK;
}

static int check_combinations(const struct mp_job *job, struct mp_error *error) {
    MP_TRY(check_device(job, error));
    MP_TRY(check_serving(job, error));
    if (job->validate_every > 0 && job->validation_share <= 0)
        return mp_fail(error, MP_EINVAL,
                       "validate-every: %d, but validation-share keeps no text for it",
                       job->validate_every);
    if (job->checkpoint_every > 0 && !*job->checkpoint)
        return mp_fail(error, MP_EINVAL,
                       "checkpoint-every: %d, but checkpoint names no folder to write to",
                       job->checkpoint_every);
    return MP_OK;
}

/* Experts that its ranks can't have in such numbers. */
static int check_experts(const struct mp_job_file *file, struct mp_error *error) {
    const struct mp_job *job = &file->job;
    int experts = mp_job_plan_experts(job);
    const char *what = mp_job_shards(job) > 1 ? "shards of experts" : "experts";
    bool more_ranks = job->ranks > experts;
    if (more_ranks && !(file->system->capabilities & MP_SYSTEM_MORE_RANKS))
        return mp_fail(error, MP_EREFUSED,
                       "ranks: %d ranks are more than the %d %s of a layer; with system %s every "
                       "rank needs one at least",
                       job->ranks, experts, what, job->system);
    if (!more_ranks && experts % job->ranks &&
        !(file->system->capabilities & MP_SYSTEM_UNEVEN_EXPERTS))
        return mp_fail(error, MP_EREFUSED,
                       "experts: %d %s can't be divided evenly over %d ranks, which system %s "
                       "needs; take a multiple of ranks",
                       experts, what, job->ranks, job->system);
    return MP_OK;
}

/* What a system is told before any rank starts.  Figures that are measured then are such as any
 * machine may have, since no system is to refuse a job for them. */
static void unmeasured_setting(const struct mp_job *job, struct mp_setting *setting) {
    const struct mp_element_sizes elements = mp_training_elements(mp_job_element_bytes(job));
    const struct mp_topology topology = mp_job_topology(job, job->ranks);
    struct mp_sizes sizes;
    mp_job_sizes(job, &elements, &sizes);
    mp_job_setting(job, &sizes, &topology, 1, setting);
    mp_job_given_figures(job, &sizes, setting);
    mp_job_usual_figures(setting);
}

int mp_job_wanted_shards(const struct mp_job_file *file) {
    struct mp_setting setting;
    unmeasured_setting(&file->job, &setting);
    return mp_system_shards(file->system, &setting, file->system_options);
}

/* What the system itself refuses, be it a capacity below one route. */
static int check_system(const struct mp_job_file *file, struct mp_error *error) {
    const struct mp_system *system = file->system;
    struct mp_setting setting;
    void *self;
    unmeasured_setting(&file->job, &setting);
    int code = mp_system_create(system, &setting, file->system_options, &self, error);
    mp_system_destroy(system, self);
    return code;
}

static int check_nodes(const struct mp_job *job, struct mp_error *error) {
    if (job->nodes == 0)
        return MP_OK;
    if (job->ranks % job->nodes)
        return mp_fail(error, MP_EINVAL,
                       "nodes: %d ranks can't be divided evenly over %d nodes; take a divisor of "
                       "ranks, or say ranks-per-node",
                       job->ranks, job->nodes);
    if (job->ranks_per_node != MP_ALL && job->ranks_per_node != job->ranks / job->nodes)
        return mp_fail(error, MP_EINVAL,
                       "nodes: %d nodes of %d ranks have %d each, ranks-per-node says %d; leave "
                       "one of the two out",
                       job->nodes, job->ranks, job->ranks / job->nodes, job->ranks_per_node);
    return MP_OK;
}

static int check_routing(const struct mp_job *job, struct mp_error *error) {
    struct mp_gate_rule rule;
    MP_TRY(mp_job_gate_rule(job, &rule, error));
    if (rule.prototypes && job->routing != MP_ROUTING_GATE)
        return mp_fail(error, MP_EINVAL,
                       "routing: gate %s takes one expert of each prototype, and replayed loads "
                       "don't say which experts go together; take routing gate, or gate softmax",
                       mp_job_gate_kind(job)->name);
    if (job->routing == MP_ROUTING_GATE && (*job->trace || *job->load))
        return mp_fail(error, MP_EINVAL,
                       "%s: given, but routing is gate, which does not read it; take routing %s",
                       *job->trace ? "trace" : "load", *job->trace ? "trace" : "load");
    if (job->routing == MP_ROUTING_TRACE && !*job->trace && !*job->trace_loads)
        return mp_fail(error, MP_EINVAL, "trace: not given, but routing is trace");
    if (job->routing == MP_ROUTING_SKEWED)
        return check_skew(job, error);
    return job->routing == MP_ROUTING_LOAD ? check_load(job, error) : MP_OK;
}

/* What the system refuses comes last: only a job that is none of anybody's is wrong. */
static int check(const struct mp_job_file *file, bool trains, struct mp_error *error) {
    const struct mp_job *job = &file->job;
    if (!file->system)
        return mp_fail(error, MP_EINVAL, "system: not given; a job needs the name of a system");
    if (trains && !*job->text)
        return mp_fail(error, MP_EINVAL,
                       "text: not given; a job needs files or folders of text to train on");
    if (trains && job->experts > MP_GATE_EXPERTS)
        return mp_fail(error, MP_EINVAL,
                       "experts: %d are more than the %d that gates choose among; only predictions "
                       "take more",
                       job->experts, MP_GATE_EXPERTS);
    if (job->context > 0 && !mp_job_serves(job))
        return mp_fail(error, MP_EINVAL,
                       "context: %d tokens in a cache, which mode train has not; take mode prefill "
                       "or decode",
                       job->context);
    MP_TRY(check_shape(file, error));
    MP_TRY(check_nodes(job, error));
    MP_TRY(check_routing(job, error));
    if (trains)
        MP_TRY(check_combinations(job, error));
    MP_TRY(check_inject(job, error));
    struct mp_job_file cut = *file; /* as its system has it */
    cut.job.expert_shards = mp_job_wanted_shards(file);
    MP_TRY(check_shards(&cut.job, MP_EREFUSED, error));
    MP_TRY(check_experts(&cut, error));
    if (file->system->create) /* registered systems have it */
        MP_TRY(check_system(&cut, error));
    return MP_OK;
}

int mp_job_check_model(const struct mp_job_file *file, struct mp_error *error) {
    return check(file, false, error);
}

int mp_job_check(const struct mp_job_file *file, struct mp_error *error) {
    return check(file, true, error);
}
