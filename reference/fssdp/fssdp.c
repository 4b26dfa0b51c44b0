/* FSSDP as a system: the descriptor, its options, and how the algorithms follow each other. */
#include "reference/fssdp/fssdp.h"

#include <math.h>
#include <string.h>

#include "reference/plan/recent.h"

#define FIELD(member) offsetof(struct mp_fssdp_options, member)

static const struct mp_option option_table[] = {
    {"window", MP_OPTION_INT, FIELD(window), "iterations", "5", 1, 1000, NULL,
     "iterations whose loads predict the next (w)"},
    {"overlap", MP_OPTION_COUNT, FIELD(overlap), "experts", "auto", -1, 65536, NULL,
     "hottest experts of a layer that are copied (t); auto: as many as travel during attention"},
    {"memory", MP_OPTION_COUNT, FIELD(memory), "experts", "auto", -1, 65536, NULL,
     "most extra experts of a layer on one rank (m); auto: as many as fit into the memory that is "
     "left (the job's copies-memory)"},
    {"calibrate", MP_OPTION_BOOL, FIELD(calibrate), "", "yes", 0, 0, NULL,
     "copy further experts after the gate where that pays"},
    {"reshard-interval", MP_OPTION_INT, FIELD(reshard_interval), "iterations", "100", 0, 1000000,
     NULL, "iterations between changes of owners; 0: never"},
    {"rematerialise", MP_OPTION_BOOL, FIELD(rematerialise), "", "no", 0, 0, NULL,
     "free copies after forward and fetch them again for backward (Hecate-RM)"},
    {0},
};

struct fssdp {
    struct mp_recent window; /* first, as its hooks want it; cells [layers][experts]: F of 1.5 as
                              * sums (1.11) */
    struct mp_setting setting;
    struct mp_fssdp_options options; /* overlap resolved to a number */
    bool frugal;                     /* the system frugal */
    struct mp_materializer materializer;
    struct mp_calibrator calibrator;
    struct mp_sharder sharder;
    struct mp_load *predicted; /* frugal: the window's mean, the same from every source */
    int32_t *owner;            /* [layers][experts], as re-sharding finds them */
    int32_t *next_owner;       /* [layers][experts] */
};

int mp_fssdp_overlap(const struct mp_setting *setting) {
    double experts =
        floor(setting->non_moe_seconds * setting->bandwidth / (double)setting->expert_bytes);
    if (!(experts > 0))
        return 0;
    return experts < setting->experts ? (int)experts : setting->experts;
}

/* m: how many experts, with their gradients, fit into setting->copies_memory, in every layer, or
 * re-materialised in two of them; all where nothing is known of it (1.11). */
static int memory_auto(const struct mp_setting *setting, bool rematerialise) {
    int regions = rematerialise && setting->layers > 2 ? 2 : setting->layers;
    double each = (double)setting->expert_bytes + (double)setting->gradient_bytes;
    double experts = floor(setting->copies_memory / (regions * each));
    return setting->copies_memory > 0 && experts < setting->experts ? (int)experts
                                                                    : setting->experts;
}

static int check_setting(const struct mp_setting *setting, const struct mp_fssdp_options *options,
                         bool frugal, struct mp_error *error) {
    const struct mp_topology *topology = &setting->topology;
    const char *name = frugal ? "frugal" : "fssdp";

    if (topology->ranks_per_node < 1 || setting->expert_bytes < 1)
        return mp_fail(
            error, MP_EINVAL,
            "%s needs ranks per node and bytes per expert of at least 1, not %d and %lld", name,
            topology->ranks_per_node, (long long)setting->expert_bytes);
    bool measured = frugal || options->overlap == MP_AUTO || options->calibrate;
    if (topology->ranks > 1 && measured && !(setting->bandwidth > 0))
        return mp_fail(error, MP_EINVAL, "%s needs a bandwidth above 0, not %g B/s",
                       frugal ? name : "fssdp with overlap auto or calibrate", setting->bandwidth);
    if (!(setting->seconds_per_route >= 0) || !(setting->non_moe_seconds >= 0))
        return mp_fail(error, MP_EINVAL,
                       "%s needs times of at least 0, not %g s per route and %g s outside the "
                       "experts",
                       name, setting->seconds_per_route, setting->non_moe_seconds);
    return MP_OK;
}

static void create_parts(struct fssdp *self) {
    struct mp_arena *memory = mp_system_arena(self);
    const struct mp_setting *setting = &self->setting;
    int layers = setting->layers, experts = setting->experts;

    MP_TAKE_EACH(memory, (size_t)layers * (size_t)experts, self->owner, self->next_owner);
    self->predicted = mp_loads_take(memory, 1, setting->topology.ranks, experts);
    mp_recent_create(memory, (size_t)layers * (size_t)experts, self->options.window, &self->window);
    mp_materializer_create(memory, &setting->topology, experts, self->options.overlap,
                           &self->materializer);
    mp_calibrator_create(memory, setting, &self->calibrator);
    if (self->frugal) /* parameters there, gradient back; read and written by every GEMM */
        self->calibrator.seconds_per_copy =
            (setting->forward_only ? 1 : 2) * self->calibrator.seconds_per_copy +
            mp_passes_of_compute(setting->forward_only) * setting->seconds_per_expert;
    mp_sharder_create(memory, &setting->topology, layers, experts, self->options.overlap,
                      &self->sharder);
}

static int create(struct fssdp *self, const struct mp_setting *setting, const void *options,
                  bool frugal, struct mp_error *error) {
    MP_TRY(check_setting(setting, options, frugal, error));
    self->setting = *setting;
    self->frugal = frugal;
    self->options = *(const struct mp_fssdp_options *)options;
    if (self->options.overlap == MP_AUTO)
        self->options.overlap = mp_fssdp_overlap(setting);
    if (self->options.overlap > setting->experts)
        self->options.overlap = setting->experts;
    if (self->options.memory == MP_AUTO)
        self->options.memory = memory_auto(setting, self->options.rematerialise);
    create_parts(self);
    return MP_OK;
}

static int fssdp_create(void *self, const struct mp_setting *setting, const void *options,
                        struct mp_error *error) {
    return create(self, setting, options, false, error);
}

static int frugal_create(void *self, const struct mp_setting *setting, const void *options,
                         struct mp_error *error) {
    return create(self, setting, options, true, error);
}

static int fssdp_copies_limit(const void *opaque) {
    const struct fssdp *self = opaque;
    /* Calibration may copy as many experts again as the prediction did. */
    int64_t limit = (int64_t)self->options.overlap * (self->options.calibrate ? 2 : 1);

    if (self->setting.topology.ranks == 1)
        return 0;
    if (limit > self->options.memory)
        limit = self->options.memory;
    return limit < self->setting.experts ? (int)limit : self->setting.experts;
}

static int add_copies(const struct mp_materializer *materializer, struct mp_plan *plan,
                      enum mp_stage stage, struct mp_error *error) {
    for (int index = 0; index < materializer->copies; index++) {
        struct mp_copy copy = materializer->copy[index];
        MP_TRY(mp_plan_add_copy(plan, copy.expert, copy.rank, stage, error));
    }
    return MP_OK;
}

/* Sums of one layer, [experts]. */
static const int64_t *window_layer(const struct fssdp *self, int layer) {
    return self->window.sum + (size_t)layer * (size_t)self->setting.experts;
}

/* The window's mean, spread evenly over the sources. */
static void predict(struct fssdp *self, int layer) {
    const int64_t *sum = window_layer(self, layer);
    int ranks = self->setting.topology.ranks, experts = self->setting.experts;
    int64_t divisor = (int64_t)ranks * (self->window.count > 0 ? self->window.count : 1);

    for (int source = 0; source < ranks; source++)
        for (int expert = 0; expert < experts; expert++)
            self->predicted->count[(long)source * experts + expert] =
                (uint32_t)((sum[expert] + divisor / 2) / divisor);
}

static void fssdp_policy(const void *opaque, struct mp_policy *policy) {
    const struct fssdp *self = opaque;
    policy->rematerialise = self->options.rematerialise;
}

/* The paper copies whatever hides under attention.  Where the processor that computes also copies,
 * nothing hides, and copying all t makes every rank slower; frugal weighs each number of copies by
 * the rule of calibration. */
static int fssdp_before_gate(void *opaque, struct mp_plan *plan, struct mp_error *error) {
    struct fssdp *self = opaque;
    struct mp_placement *proposal = &self->calibrator.proposal;

    if (self->frugal) {
        predict(self, plan->layer);
        self->sharder.hot[plan->layer] =
            mp_choose_overlap(&self->calibrator, &self->materializer, &plan->during,
                              self->predicted, self->options.memory);
    } else {
        mp_placement_copy(proposal, &plan->during);
        mp_materialize(&self->materializer, proposal, window_layer(self, plan->layer),
                       self->options.memory);
    }
    return add_copies(&self->materializer, plan, MP_STAGE_BEFORE_GATE, error);
}

static int fssdp_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                            struct mp_error *error) {
    struct fssdp *self = opaque;

    bool copies = false;
    if (self->options.calibrate && self->frugal)
        copies = mp_choose_overlap(&self->calibrator, &self->materializer, &plan->during, load,
                                   self->options.memory) > 0;
    else if (self->options.calibrate)
        copies = mp_calibrate(&self->calibrator, &self->materializer, &plan->during, load,
                              self->options.memory);
    if (copies)
        MP_TRY(add_copies(&self->materializer, plan, MP_STAGE_AFTER_GATE, error));
    return mp_plan_dispatch_nearest(plan, load, error);
}

static int fssdp_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                            const struct mp_placement home[], struct mp_rehome *change,
                            struct mp_error *error) {
    struct fssdp *self = opaque;
    int interval = self->options.reshard_interval, experts = self->setting.experts;

    (void)error;
    mp_recent_push_totals(&self->window, load, self->setting.layers);
    if (interval == 0 || (iteration + 1) % interval != 0)
        return MP_OK;
    for (int layer = 0; layer < self->setting.layers; layer++)
        memcpy(self->owner + (long)layer * experts, home[layer].owner,
               (size_t)experts * sizeof *self->owner);
    mp_shard(&self->sharder, self->window.sum, self->owner, self->next_owner);
    for (int layer = 0; layer < self->setting.layers; layer++)
        mp_placement_set_owners(&change->next[layer], self->next_owner + (long)layer * experts);
    change->changed = true;
    return MP_OK;
}

/* What both systems have. */
#define SHARED                                                                                     \
    .abi = MP_SYSTEM_ABI,                                                                          \
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_MOVES_OWNERS | MP_SYSTEM_PLANS_BEFORE_GATE |  \
                    MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,                               \
    .options = option_table, .options_size = sizeof(struct mp_fssdp_options),                      \
    .policy = fssdp_policy, .copies_limit = fssdp_copies_limit, .before_gate = fssdp_before_gate,  \
    .after_gate = fssdp_after_gate, .after_step = fssdp_after_step, .save = mp_recent_save,        \
    .load = mp_recent_load

const struct mp_system mp_system_fssdp = {
    .name = "fssdp",
    .title = "FSSDP: fully sharded sparse data parallelism (Hecate)",
    .source = "Hecate, arXiv 2502.02581, sections 3 and 4, algorithms 1 and 2",
    .models =
        "Modelled: load prediction by sliding window, sparse materialisation with overlap degree "
        "and memory limit in both branches, calibration after the gate, topology-aware dispatch, "
        "re-materialisation, heterogeneous re-sharding with optimizer state. Every expert has one "
        "owner in the whole job, with more ranks than experts, too. The paper leaves the "
        "latency model of calibration and the rounding of slots open; the rules here are our own. "
        "The number of extra experts is what the memory that is left has room for: what a "
        "predicted device has left with an even share of experts and routes, or what the job says "
        "(copies-memory). Not modelled: profiling of memory while ranks train.",
    SHARED,
    .size = sizeof(struct fssdp),
    .create = fssdp_create,
};

const struct mp_system mp_system_frugal = {
    .name = "frugal",
    .title = "Frugal: FSSDP that makes only the copies that pay",
    .source = "moeperf's own, after Hecate, arXiv 2502.02581",
    .models =
        "As fssdp, but for how many of the hottest experts are copied: of the t that the paper "
        "would copy, as many as save most with their travel there and back and their products "
        "counted in full, by the rule of calibration. Where what computes also copies, nothing "
        "hides under attention, and copying all t makes every rank slower. Not modelled: the same "
        "as of fssdp.",
    SHARED,
    .size = sizeof(struct fssdp),
    .create = frugal_create,
};
