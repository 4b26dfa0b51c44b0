/* HierMoE (arXiv 2508.09591): a deduplicated exchange as deep as pays, and
 * experts that swap places so that less has to travel. */
#include <string.h>

#include "baselines/hiermoe/depth.h"
#include "baselines/hiermoe/swap.h"
#include "reference/plan/distinct.h"

struct options {
    int depth;    /* levels; 0: as many as pay */
    int interval; /* of swaps, iterations; 0: none */
    int gamma, sample;
    double latency, latency_in_node;
    char hierarchy[MP_TEXT_SIZE], inter[MP_TEXT_SIZE], intra[MP_TEXT_SIZE];
};
#define FIELD(member) offsetof(struct options, member)

static const struct mp_option option_table[] = {
    {"depth", MP_OPTION_CHOICE, FIELD(depth), "", "auto", 0, 0, "auto 1 2 3 4",
     "a token goes once to every rank (1), or once to every group of the hierarchy's first level "
     "and from there to its ranks (2), or of its first two or three levels; auto takes what the "
     "model says is fastest, layer by layer, after every iteration"},
    {"hierarchy", MP_OPTION_TEXT, FIELD(hierarchy), "", "node", 0, 0, NULL,
     "sizes of groups inside one another, outermost first: node, 16:node:2, ..., at most three"},
    {"interval", MP_OPTION_INT, FIELD(interval), "iterations", "1", 0, 1 << 20, NULL,
     "two experts of every layer may swap places after so many; 0: never"},
    {"gamma", MP_OPTION_INT, FIELD(gamma), "", "10", 1, 12, NULL,
     "how sharply the largest of all groups' tokens counts"},
    {"sample", MP_OPTION_INT, FIELD(sample), "tokens", "1024", 1, 65536, NULL,
     "tokens drawn to find the swap: loads don't say which experts tokens take together"},
    {"latency", MP_OPTION_DOUBLE, FIELD(latency), "s", "5e-4", 0, 1, NULL,
     "of an exchange between nodes, in the model"},
    {"latency-in-node", MP_OPTION_DOUBLE, FIELD(latency_in_node), "s", "5.7e-4", 0, 1, NULL,
     "of an exchange inside nodes, in the model"},
    {"inter", MP_OPTION_TEXT, FIELD(inter), "s, s/B", "", 0, 0, NULL,
     "alpha/beta:... of exchanges between groups of each level, as fitted; empty: from latencies "
     "and bandwidths"},
    {"intra", MP_OPTION_TEXT, FIELD(intra), "s, s/B", "", 0, 0, NULL,
     "the same of exchanges straight to ranks, of all and inside a group of each level"},
    {0},
};

/* Groups of a level, and what swaps do to them. */
struct level {
    int groups;
    int32_t *group;  /* [experts] */
    int32_t *count;  /* [groups] drawn tokens */
    int32_t *change; /* [experts][experts], by mp_swap_changes */
    double sum;      /* of the counts' powers */
};

struct hiermoe {
    struct mp_setting setting;
    struct options options;
    int32_t *depth; /* [layers] of the next iteration's exchanges */
    uint32_t *total;
    int32_t *expert; /* [sample][top_k] */
    int32_t *memory; /* mp_swap_memory */
    double *power;   /* [sample + 1] of every count there can be */
    struct mp_depths depths;
    int levels;                         /* of them; the last: ranks */
    struct level level[MP_MOST_LEVELS]; /* [levels] */
    struct mp_distinct_model model;
    double scale; /* tokens for each that is drawn */
};

static void create_memory(struct hiermoe *self) {
    const struct mp_setting *setting = &self->setting;
    struct mp_arena *memory = mp_system_arena(self);
    size_t experts = (size_t)setting->experts, sample = (size_t)self->options.sample;
    MP_TAKE(memory, self->depth, setting->layers);
    MP_TAKE(memory, self->total, experts);
    MP_TAKE(memory, self->expert, sample * (size_t)setting->top_k);
    MP_TAKE(memory, self->memory, mp_swap_memory(setting->experts, setting->topology.ranks));
    MP_TAKE(memory, self->power, sample + 1);
    for (int i = 0; i < self->levels; i++) {
        struct level *level = &self->level[i];
        level->groups = mp_topology_nodes(&self->depths.levels.groups[i]);
        MP_TAKE(memory, level->group, experts);
        MP_TAKE(memory, level->count, level->groups);
        MP_TAKE(memory, level->change, experts * experts);
    }
}

static int create_depths(struct hiermoe *self, struct mp_error *error) {
    const struct options *options = &self->options;
    const struct mp_depth_texts texts = {.hierarchy = options->hierarchy,
                                         .inter = options->inter,
                                         .intra = options->intra,
                                         .latency = options->latency,
                                         .latency_in_node = options->latency_in_node};
    int code = mp_depths_create(&self->setting, &texts, &self->depths, error);
    if (!code && options->depth > self->depths.levels.count)
        code = mp_fail(
            error, MP_EINVAL, "hiermoe depth %d needs %d levels of groups, hierarchy %s has %d",
            options->depth, options->depth - 1, options->hierarchy, self->depths.levels.count - 1);
    self->levels = self->depths.levels.count;
    return code;
}

static int hiermoe_create(void *opaque, const struct mp_setting *setting, const void *options,
                          struct mp_error *error) {
    struct hiermoe *self = opaque;
    struct mp_arena *memory = mp_system_arena(self);
    self->setting = *setting;
    self->options = *(const struct options *)options;
    MP_TRY(create_depths(self, error));
    mp_distinct_model_create(memory, setting->topology.ranks, setting->experts, setting->top_k,
                             &self->model);
    create_memory(self);
    if (memory->lacking)
        return MP_ENOMEM;
    for (int count = 0; count <= self->options.sample; count++)
        self->power[count] = mp_swap_power(count, self->options.gamma);
    for (int layer = 0; layer < setting->layers; layer++)
        self->depth[layer] = self->options.depth ? self->options.depth : self->levels;
    return MP_OK;
}

static int hiermoe_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                              struct mp_error *error) {
    const struct hiermoe *self = opaque;
    plan->level_size[0] = plan->topology.ranks;
    for (int i = 0; i + 1 < self->depth[plan->layer]; i++)
        plan->level_size[i] = self->depths.levels.groups[i].ranks_per_node;
    return mp_plan_dispatch_to_owner(plan, load, error);
}

/* The model's t_d, of the (smooth) largest numbers of tokens of each level's groups. */
static double time_of(const struct hiermoe *self, int depth, const double most[]) {
    return mp_depths_seconds(&self->depths, depth, most,
                             self->scale * (double)self->setting.route_bytes);
}

/* ---- swaps ---- */

/* Draws tokens of all ranks' loads. */
static struct mp_swap_tokens draw_tokens(struct hiermoe *self, int layer,
                                         const struct mp_load *load) {
    const struct mp_setting *setting = &self->setting;
    uint64_t seed = setting->seed + (uint64_t)layer; /* the same in all iterations: swaps answer to
                                                        loads, not to chance */
    double routes = 0;
    for (int e = 0; e < setting->experts; e++) {
        self->total[e] = 0;
        for (int rank = 0; rank < load->ranks; rank++)
            self->total[e] += mp_load_at(load, rank, e);
        routes += self->total[e];
    }
    mp_distinct_model_fit(&self->model, self->total);
    for (int t = 0; t < self->options.sample; t++)
        mp_distinct_model_draw(&self->model, seed, (uint64_t)t,
                               self->expert + (size_t)t * (size_t)setting->top_k);
    self->scale = routes / setting->top_k / self->options.sample;
    return (struct mp_swap_tokens){self->options.sample, setting->top_k, setting->experts,
                                   self->expert};
}

static void count_level(const struct hiermoe *self, const struct mp_swap_tokens *tokens,
                        struct level *level) {
    mp_swap_count(tokens, level->group, level->groups, self->memory, level->count);
    level->sum = 0;
    for (int g = 0; g < level->groups; g++)
        level->sum += self->power[level->count[g]];
}

/* The sum of the counts' powers after a swap. */
static double after_swap(const struct hiermoe *self, const struct level *level, int a, int b) {
    int of_a = level->group[a], of_b = level->group[b];
    size_t experts = (size_t)self->setting.experts;
    if (of_a == of_b)
        return level->sum;
    int32_t count_a = level->count[of_a], count_b = level->count[of_b];
    int32_t change_a = level->change[(size_t)a * experts + (size_t)b];
    int32_t change_b = level->change[(size_t)b * experts + (size_t)a];
    const double *power = self->power;
    return level->sum + (power[count_a + change_a] - power[count_a]) +
           (power[count_b + change_b] - power[count_b]);
}

/* Of each level's counts: sums of powers, and the smooth largest counts. */
struct load_of_levels {
    double sum[MP_MOST_LEVELS], most[MP_MOST_LEVELS];
};

/* No more than the smooth largest count of a sum, near one of which it is known: a root x^a is
 * 1 / (1 / x)^a, and by Bernoulli's inequality (1 / x)^a <= 1 + a (1 / x - 1). */
static double least_most(double sum, double known_sum, double known_most, int gamma) {
    return known_most * sum / (sum + (known_sum - sum) / gamma);
}

/* The pair whose swap makes exchanges fastest; false: none makes them faster.  Roots are taken only
 * where their bounds could be better than the best. */
static bool find_swap(struct hiermoe *self, int depth, struct load_of_levels best, int pair[2]) {
    const struct level *level = self->level;
    const int32_t *rank = level[self->levels - 1].group;
    const int gamma = self->options.gamma;
    double present = time_of(self, depth, best.most), least = present;
    for (int a = 0; a < self->setting.experts; a++)
        for (int b = a + 1; b < self->setting.experts; b++) {
            struct load_of_levels now;
            if (rank[a] == rank[b])
                continue;
            for (int i = 0; i < self->levels; i++) {
                now.sum[i] = after_swap(self, &level[i], a, b);
                now.most[i] = least_most(now.sum[i], best.sum[i], best.most[i], gamma);
            }
            if (time_of(self, depth, now.most) >= least)
                continue;
            for (int i = 0; i < self->levels; i++)
                now.most[i] = mp_swap_smooth_max(now.sum[i], gamma);
            double seconds = time_of(self, depth, now.most);
            if (seconds < least) {
                least = seconds;
                best = now;
                pair[0] = a;
                pair[1] = b;
            }
        }
    return least < present;
}

static void learn_layer(struct hiermoe *self, int layer, bool swaps, const struct mp_load *load,
                        const struct mp_placement *home, struct mp_rehome *change) {
    const struct mp_topology *groups = self->depths.levels.groups;
    struct mp_swap_tokens tokens = draw_tokens(self, layer, load);
    struct load_of_levels now;
    for (int i = 0; i < self->levels; i++) {
        struct level *level = &self->level[i];
        for (int e = 0; e < home->experts; e++)
            level->group[e] = mp_topology_node(&groups[i], home->owner[e]);
        count_level(self, &tokens, level);
        now.sum[i] = level->sum;
        now.most[i] = mp_swap_smooth_max(level->sum, self->options.gamma);
    }
    int depth = self->options.depth, pair[2] = {0};
    if (depth == 0)
        depth = mp_depths_best(&self->depths, now.most,
                               self->scale * (double)self->setting.route_bytes);
    self->depth[layer] = depth;
    if (!swaps)
        return;
    for (int i = 0; i < self->levels; i++)
        mp_swap_changes(&tokens, self->level[i].group, self->level[i].groups, self->memory,
                        self->level[i].change);
    if (!find_swap(self, depth, now, pair))
        return;
    int32_t *owner = self->level[self->levels - 1].group, first = owner[pair[0]];
    owner[pair[0]] = owner[pair[1]];
    owner[pair[1]] = first;
    mp_placement_set_owners(&change->next[layer], owner);
    change->changed = true;
}

static int hiermoe_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                              const struct mp_placement home[], struct mp_rehome *change,
                              struct mp_error *error) {
    struct hiermoe *self = opaque;
    int interval = self->options.interval;
    bool swaps = interval > 0 && (iteration + 1) % interval == 0;
    (void)error;
    if (self->setting.topology.ranks == 1 || (!swaps && self->options.depth > 0))
        return MP_OK;
    for (int layer = 0; layer < self->setting.layers; layer++)
        if (mp_load_total(&load[layer]) > 0)
            learn_layer(self, layer, swaps, &load[layer], &home[layer], change);
    return MP_OK;
}

/* ---- restarts ---- */

static size_t hiermoe_save(const void *opaque, void *buffer, size_t size) {
    const struct hiermoe *self = opaque;
    size_t bytes = (size_t)self->setting.layers * sizeof *self->depth;
    if (size >= bytes)
        memcpy(buffer, self->depth, bytes);
    return bytes;
}

static int hiermoe_load(void *opaque, const void *buffer, size_t size, struct mp_error *error) {
    struct hiermoe *self = opaque;
    size_t layers = (size_t)self->setting.layers;
    const int32_t *depth = buffer;
    bool fits = size == layers * sizeof *depth;
    for (size_t layer = 0; fits && layer < layers; layer++)
        fits = depth[layer] >= 1 && depth[layer] <= self->levels;
    if (!fits)
        return mp_fail(error, MP_EFORMAT, "%zu bytes are no state of the system hiermoe", size);
    memcpy(self->depth, depth, size);
    return MP_OK;
}

const struct mp_system mp_system_hiermoe = {
    .abi = MP_SYSTEM_ABI,
    .name = "hiermoe",
    .title = "HierMoE: deduplicated exchange of the best depth, experts that swap",
    .source = "HierMoE, arXiv 2508.09591 (HierD-AlltoAll and HierD-ES)",
    .models =
        "Modelled: deduplicated exchange over up to three levels of groups inside one another "
        "(nodes, unless hierarchy says more) and ranks, of the depth whose modelled time is least; "
        "after every iteration, or every few, the two experts of a layer whose swap makes that "
        "time least change places with their optimizer state, if any makes it less; the time is "
        "the paper's sum of lines in the smooth largest number of tokens that a group of each "
        "level gets, and swaps are tried by the incremental rule. Tokens' sets of experts are "
        "drawn from the loads of all ranks together, where the paper has those of the gate. Not "
        "modelled: fitting of the lines to the machine: they are options, or follow from the "
        "bandwidths between nodes and inside them and two latencies.",
    .capabilities = MP_SYSTEM_MOVES_OWNERS,
    .exchange = MP_EXCHANGE_DEDUPLICATED,
    .options = option_table,
    .options_size = sizeof(struct options),
    .size = sizeof(struct hiermoe),
    .create = hiermoe_create,
    .after_gate = hiermoe_after_gate,
    .after_step = hiermoe_after_step,
    .save = hiermoe_save,
    .load = hiermoe_load,
};
