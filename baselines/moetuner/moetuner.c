#include "baselines/moetuner/moetuner.h"

#include <string.h>

#include "baselines/moetuner/clusters.h"
#include "baselines/moetuner/links.h"

enum { ILP, SEARCH };

struct options {
    int solver;   /* ILP or SEARCH */
    int window;   /* iterations before the first placement */
    int interval; /* iterations between later ones; 0: none */
    int nodes;
    int layers; /* of a program of ILP 2, or MP_AUTO, MP_ALL */
    double gap;
    double even;
};
#define FIELD(member) offsetof(struct options, member)

static const struct mp_option option_table[] = {
    {"solver", MP_OPTION_CHOICE, FIELD(solver), "", "ilp", 0, 0, "ilp search",
     "integer programs go on where local search may be off by more than the gap, or do not"},
    {"window", MP_OPTION_INT, FIELD(window), "iterations", "10", 1, 1 << 20, NULL,
     "whose loads and transitions experts are placed by, the first time"},
    {"interval", MP_OPTION_INT, FIELD(interval), "iterations", "0", 0, 1 << 20, NULL,
     "after which experts are placed again, by what came in between; 0: never"},
    {"gap", MP_OPTION_DOUBLE, FIELD(gap), "", "0.025", 0, 1, NULL,
     "share of a program's objective by which a better solution may be left unfound"},
    {"even", MP_OPTION_DOUBLE, FIELD(even), "", "0.001", 0, 2, NULL,
     "share of a layer's routes: clusters that deviate by less beyond their bound are even enough"},
    {"nodes", MP_OPTION_INT, FIELD(nodes), "nodes", "2000", 0, 1 << 30, NULL,
     "of a program's search tree, at most; ranks see no clock"},
    {"program-layers", MP_OPTION_COUNT, FIELD(layers), "layers", "auto", -1, 1 << 20, NULL,
     "that one program puts on ranks; auto: so many that layers x ranks x nodes are at most 512"},
    {0},
};

struct moetuner {
    struct mp_setting setting;
    struct options options;
    int64_t iterations; /* summed since the last placement */
    bool placed;        /* at least once */
    int64_t *load;      /* [layers][experts] sums */
    int64_t *next;      /* [layers - 1][experts][experts] sums */
    int32_t *cluster;   /* [layers][experts] */
    int32_t *rank;      /* [layers][ranks] of clusters */
    int32_t *owner;     /* [experts] */
    struct mp_clusters clusters;
    struct mp_links links;
    struct mp_moetuner_facts facts;
    bool has_facts; /* of the last step */
};

static size_t load_cells(const struct mp_setting *setting) {
    return (size_t)setting->layers * (size_t)setting->experts;
}
static size_t next_cells(const struct mp_setting *setting) {
    size_t experts = (size_t)setting->experts;
    return ((size_t)setting->layers - 1) * experts * experts;
}

static double seconds_of_route(const struct mp_setting *setting, double bandwidth) {
    return bandwidth > 0 ? (double)setting->route_bytes / bandwidth : 0;
}

static void create_parts(struct moetuner *self) {
    struct mp_arena *memory = mp_system_arena(self);
    const struct mp_setting *setting = &self->setting;
    int layers = setting->layers, experts = setting->experts, ranks = setting->topology.ranks;
    MP_TAKE_EACH(memory, load_cells(setting), self->load, self->cluster);
    MP_TAKE(memory, self->next, next_cells(setting) + 1);
    MP_TAKE(memory, self->rank, (size_t)layers * (size_t)ranks);
    MP_TAKE(memory, self->owner, (size_t)experts);
    mp_clusters_create(memory, experts, ranks, &self->clusters);
    mp_links_create(memory, layers, &setting->topology, &self->links);
    double between = seconds_of_route(setting, setting->bandwidth);
    double in_node = seconds_of_route(setting, setting->bandwidth_in_node);
    bool slower = mp_topology_nodes(&setting->topology) > 1 && in_node > between;
    self->links.between = between;
    self->links.in_node = slower ? between : in_node;
}

static int moetuner_create(void *opaque, const struct mp_setting *setting, const void *options,
                           struct mp_error *error) {
    const struct options *given = options;
    char solver[64];
    struct mp_error none = {0};
    if (given->solver == ILP && mp_program_solver(solver, sizeof solver, &none))
        return mp_fail(error, MP_EINVAL, "moetuner with solver ilp (search does without): %s",
                       none.text);
    struct moetuner *self = opaque;
    self->setting = *setting;
    self->options = *given;
    create_parts(self);
    return MP_OK;
}

static int moetuner_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                               struct mp_error *error) {
    (void)opaque;
    return mp_plan_dispatch_to_owner(plan, load, error);
}

/* ---- placing ---- */

static void count_program(struct moetuner *self, const struct mp_program_result *result) {
    self->facts.programs++;
    self->facts.programs_limited += result->status != MP_PROGRAM_SOLVED;
    self->facts.nodes += result->nodes;
}

/* Whether local search may have left more than is to be left. */
static bool leaves_much(const struct moetuner *self, const int64_t load[], int64_t found,
                        int64_t bound) {
    int64_t routes = 0;
    for (int e = 0; e < self->setting.experts; e++)
        routes += load[e];
    double even = self->options.even * (double)routes * self->setting.topology.ranks;
    return self->options.solver == ILP && (double)(found - bound) > even &&
           mp_program_gap((double)found, (double)bound) > self->options.gap;
}

static int place_clusters(struct moetuner *self, struct mp_error *error) {
    const struct options *options = &self->options;
    const struct mp_program_limits limits = {.gap = options->gap, .nodes = options->nodes};
    int experts = self->setting.experts;
    int64_t deviation = 0, bounds = 0;
    for (int layer = 0; layer < self->setting.layers; layer++) {
        const int64_t *load = self->load + (size_t)layer * (size_t)experts;
        int32_t *cluster = self->cluster + (size_t)layer * (size_t)experts;
        int64_t bound = mp_clusters_bound(&self->clusters, load);
        mp_clusters_search(&self->clusters, load, cluster);
        int64_t found = mp_clusters_deviation(&self->clusters, load, cluster);
        if (leaves_much(self, load, found, bound)) {
            struct mp_program_result result;
            MP_TRY(mp_clusters_program(&self->clusters, load, &limits, cluster, &bound, &result,
                                       error));
            count_program(self, &result);
            found = mp_clusters_deviation(&self->clusters, load, cluster);
        }
        deviation += found;
        bounds += bound;
    }
    int clusters = self->setting.topology.ranks;
    self->facts.deviation = (double)deviation / clusters;
    self->facts.deviation_bound = (double)bounds / clusters;
    self->facts.clusters_gap = mp_program_gap((double)deviation, (double)bounds);
    return MP_OK;
}

/* Transitions between clusters, from those between experts. */
static void sum_flows(struct moetuner *self) {
    int experts = self->setting.experts, ranks = self->setting.topology.ranks;
    for (int layer = 0; layer + 1 < self->setting.layers; layer++) {
        const int32_t *from = self->cluster + (size_t)layer * (size_t)experts, *to = from + experts;
        const int64_t *next = self->next + (size_t)layer * (size_t)experts * (size_t)experts;
        int64_t *flow = mp_links_flow(&self->links, layer);
        memset(flow, 0, (size_t)ranks * (size_t)ranks * sizeof *flow);
        for (int i = 0; i < experts; i++)
            for (int j = 0; j < experts; j++)
                flow[from[i] * ranks + to[j]] += next[(size_t)i * (size_t)experts + (size_t)j];
    }
}

/* Layers of one program. */
static int program_layers(const struct moetuner *self) {
    const struct mp_topology *topology = &self->setting.topology;
    int layers = self->setting.layers, wanted = self->options.layers;
    if (wanted == MP_AUTO) {
        wanted = 512 / topology->ranks / mp_topology_nodes(topology);
        wanted = wanted > 1 ? wanted : 1;
    }
    return wanted > 0 && wanted < layers ? wanted : layers;
}

/* All layers in one program, or some at a time, each twice with other neighbours; whose bound is
 * that of pairs. */
static int improve_links(struct moetuner *self, double *bound, struct mp_error *error) {
    const struct options *options = &self->options;
    const struct mp_program_limits limits = {.gap = options->gap, .nodes = options->nodes};
    int layers = self->setting.layers, span = program_layers(self), last = -1;
    int stride = span > 1 ? span / 2 : 1;
    for (int first = 0; last < layers - 1; first += stride) {
        double of_part;
        struct mp_program_result result;
        last = first + span < layers ? first + span - 1 : layers - 1;
        MP_TRY(mp_links_program(&self->links, first, last, &limits, self->rank, &of_part, &result,
                                error));
        count_program(self, &result);
        *bound = span == layers && of_part > *bound ? of_part : *bound;
    }
    return MP_OK;
}

static int place_links(struct moetuner *self, struct mp_error *error) {
    const struct options *options = &self->options;
    sum_flows(self);
    double bound = mp_links_bound(&self->links);
    mp_links_search(&self->links, self->rank);
    double seconds = mp_links_seconds(&self->links, self->rank);
    if (options->solver == ILP && mp_program_gap(seconds, bound) > options->gap) {
        MP_TRY(improve_links(self, &bound, error));
        seconds = mp_links_seconds(&self->links, self->rank);
    }
    self->facts.links = seconds;
    self->facts.links_bound = bound < seconds ? bound : seconds;
    self->facts.links_gap = mp_program_gap(seconds, bound);
    return MP_OK;
}

static void write_homes(struct moetuner *self, const struct mp_placement home[],
                        struct mp_rehome *change) {
    int experts = self->setting.experts, ranks = self->setting.topology.ranks;
    for (int layer = 0; layer < self->setting.layers; layer++) {
        const int32_t *cluster = self->cluster + (size_t)layer * (size_t)experts;
        const int32_t *rank = self->rank + (size_t)layer * (size_t)ranks;
        for (int e = 0; e < experts; e++)
            self->owner[e] = rank[cluster[e]];
        mp_placement_set_owners(&change->next[layer], self->owner);
        change->changed |= !mp_placement_equal(&change->next[layer], &home[layer]);
    }
}

static void add_loads(struct moetuner *self, const struct mp_load load[]) {
    const struct mp_setting *setting = &self->setting;
    size_t experts = (size_t)setting->experts;
    for (int layer = 0; layer < setting->layers; layer++) {
        int64_t *sum = self->load + (size_t)layer * experts;
        int64_t *next = self->next + (size_t)layer * experts * experts;
        for (int rank = 0; rank < load[layer].ranks; rank++)
            for (int e = 0; e < setting->experts; e++)
                sum[e] += mp_load_at(&load[layer], rank, e);
        for (size_t i = 0; load[layer].next && layer + 1 < setting->layers && i < experts * experts;
             i++)
            next[i] += load[layer].next[i];
    }
    self->iterations++;
}

static int moetuner_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                               const struct mp_placement home[], struct mp_rehome *change,
                               struct mp_error *error) {
    struct moetuner *self = opaque;
    const struct options *options = &self->options;
    (void)iteration;
    self->has_facts = false;
    if (self->placed && options->interval == 0)
        return MP_OK;
    add_loads(self, load);
    if (self->iterations < (self->placed ? options->interval : options->window))
        return MP_OK;
    self->facts = (struct mp_moetuner_facts){0};
    MP_TRY(place_clusters(self, error));
    MP_TRY(place_links(self, error));
    write_homes(self, home, change);
    self->has_facts = true;
    self->placed = true;
    self->iterations = 0;
    memset(self->load, 0, load_cells(&self->setting) * sizeof *self->load);
    memset(self->next, 0, next_cells(&self->setting) * sizeof *self->next);
    return MP_OK;
}

#define FACT(member) offsetof(struct mp_moetuner_facts, member)
static const struct mp_named_number fact_names[] = {
    {"cluster-deviation", FACT(deviation), MP_NUMBER_DOUBLE},
    {"cluster-deviation-bound", FACT(deviation_bound), MP_NUMBER_DOUBLE},
    {"cluster-gap", FACT(clusters_gap), MP_NUMBER_DOUBLE},
    {"link-seconds", FACT(links), MP_NUMBER_DOUBLE},
    {"link-bound-seconds", FACT(links_bound), MP_NUMBER_DOUBLE},
    {"link-gap", FACT(links_gap), MP_NUMBER_DOUBLE},
    {"programs", FACT(programs), MP_NUMBER_INT},
    {"programs-limited", FACT(programs_limited), MP_NUMBER_INT},
    {"program-nodes", FACT(nodes), MP_NUMBER_INT64},
    {0},
};

static const void *moetuner_found(const void *opaque) {
    const struct moetuner *self = opaque;
    return self->has_facts ? &self->facts : NULL;
}

/* ---- restarts ---- */

struct saved {
    char magic[8];
    int32_t layers, experts;
    int64_t iterations;
    int64_t placed;
};
static const char MAGIC[8] = {'M', 'P', 'T', 'U', 'N', 'E', '_', '1'};

static size_t saved_bytes(const struct moetuner *self) {
    return sizeof(struct saved) + load_cells(&self->setting) * sizeof *self->load +
           next_cells(&self->setting) * sizeof *self->next;
}

static size_t moetuner_save(const void *opaque, void *buffer, size_t size) {
    const struct moetuner *self = opaque;
    struct saved head = {.layers = self->setting.layers,
                         .experts = self->setting.experts,
                         .iterations = self->iterations,
                         .placed = self->placed};
    size_t loads = load_cells(&self->setting) * sizeof *self->load;
    memcpy(head.magic, MAGIC, sizeof MAGIC);
    if (size >= saved_bytes(self)) {
        char *to = buffer;
        memcpy(to, &head, sizeof head);
        memcpy(to + sizeof head, self->load, loads);
        memcpy(to + sizeof head + loads, self->next,
               next_cells(&self->setting) * sizeof *self->next);
    }
    return saved_bytes(self);
}

static int moetuner_load(void *opaque, const void *buffer, size_t size, struct mp_error *error) {
    struct moetuner *self = opaque;
    struct saved head = {0};
    size_t loads = load_cells(&self->setting) * sizeof *self->load;
    if (size == saved_bytes(self))
        memcpy(&head, buffer, sizeof head);
    if (memcmp(head.magic, MAGIC, sizeof MAGIC) != 0 || head.layers != self->setting.layers ||
        head.experts != self->setting.experts || head.iterations < 0 || head.placed >> 1 != 0)
        return mp_fail(error, MP_EFORMAT, "%zu bytes are no state of the system moetuner", size);
    self->iterations = head.iterations;
    self->placed = head.placed;
    memcpy(self->load, (const char *)buffer + sizeof head, loads);
    memcpy(self->next, (const char *)buffer + sizeof head + loads,
           next_cells(&self->setting) * sizeof *self->next);
    return MP_OK;
}

const struct mp_system mp_system_moetuner = {
    .abi = MP_SYSTEM_ABI,
    .name = "moetuner",
    .title = "MoETuner: experts placed by integer programs of loads and transitions",
    .source = "MoETuner, arXiv 2502.06643 (both integer programs)",
    .models =
        "Modelled: experts of a layer in clusters of even load (ILP 1, with as many experts in "
        "each), clusters on ranks so that the fullest link from layer to layer carries least (ILP "
        "2, links of a node and between nodes), by the loads and transitions of the first "
        "iterations; experts then move once with their optimizer state, or again and again. ILP 2 "
        "is written with nodes in place of ranks, which has the same optimum. Local search finds "
        "a placement, programs go on where it may be off by more than the gap, and what was "
        "proven is recorded with the iteration. Not modelled: profiling in a run of its own, "
        "Gurobi (CBC here, with a limit in nodes), clusters of different numbers of experts.",
    .capabilities = MP_SYSTEM_MOVES_OWNERS | MP_SYSTEM_USES_TRANSITIONS,
    .options = option_table,
    .options_size = sizeof(struct options),
    .size = sizeof(struct moetuner),
    .create = moetuner_create,
    .after_gate = moetuner_after_gate,
    .after_step = moetuner_after_step,
    .facts = fact_names,
    .found = moetuner_found,
    .save = moetuner_save,
    .load = moetuner_load,
};
