/* Nodewise as a system: options, what happens when, and the descriptor. */
#include "baselines/nodewise/nodewise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(member) offsetof(struct mp_nodewise_options, member)

static const struct mp_option option_table[] = {
    {"window", MP_OPTION_INT, FIELD(window), "iterations", "1", 1, 1000, NULL,
     "iterations whose mean loads predict the next"},
    {"cover", MP_OPTION_COUNT, FIELD(cover), "experts", "auto", -1, 65536, NULL,
     "hottest experts of a layer that every node gets before the gate; auto: as many as save more "
     "than they cost, and after it further ones"},
    {"memory", MP_OPTION_COUNT, FIELD(memory), "experts", "auto", -1, 65536, NULL,
     "most extra experts of a layer on one rank; auto: as many as fit into the memory that is left "
     "(the job's copies-memory)"},
    {"rematerialise", MP_OPTION_CHOICE, FIELD(rematerialise), "", "auto", 0, 0, "auto yes no",
     "copies are freed after forward and fetched again for backward; auto: where there is hardly "
     "memory for any of all layers at once"},
    {"pool", MP_OPTION_BOOL, FIELD(pool), "", "yes", 0, 0, NULL,
     "experts that not every node gets are put behind all gates of their own, where that pays"},
    {"ahead", MP_OPTION_COUNT, FIELD(ahead), "experts", "auto", -1, 65536, NULL,
     "covered experts behind each gate that are sent ahead in backward, for the next iteration; "
     "auto: those that gates have no time for in forward, and have in backward"},
    {"ranks-per-gate", MP_OPTION_COUNT, FIELD(ranks_per_gate), "ranks", "auto", -1, 65536, NULL,
     "neighbours that share one way to other nodes; auto: as a prediction's cluster says, else "
     "one"},
    {"early", MP_OPTION_BOOL, FIELD(early), "", "yes", 0, 0, NULL,
     "copies before the gate set out under the experts of the layer before"},
    {"even", MP_OPTION_BOOL, FIELD(even), "", "yes", 0, 0, NULL,
     "copies inside nodes before the gate, so that ranks compute the same if loads are as before"},
    {"correct", MP_OPTION_BOOL, FIELD(correct), "", "yes", 0, 0, NULL,
     "copies after the gate, where that pays"},
    {"chunks", MP_OPTION_COUNT, FIELD(chunks), "", "auto", -1, MP_MOST_DEGREE, NULL,
     "groups of a rank's experts, each with an exchange under the products of the one before; "
     "auto: 5, or 3 if rows cross borders of nodes; 1 where gradients take nine tenths of what "
     "hides them, messages half of it, or the job cuts rows"},
    {0},
};

/* Three between the ends; with rows from other nodes in one, all else is in halves beside it. */
enum { CHUNKS = 5, CHUNKS_WITH_AWAY = 3 };
/* Gates that gradients keep busy for so much of what hides them have no time for rows in steps. */
static const double FULL_GATES = 0.9;
/* What nothing hides of copies' way, where they may be made in the next micro-batch, too. */
static const double WAY_AT_FIRST = 1.15;

/* Experts on their way between nodes that a gate takes in, and sends out. */
struct way {
    int in, out;
};

/* Sums of the lowest layers' gradients come when nothing is left to hide what sets out behind them.
 */
enum { FIRST_AHEAD = 2 };

/* What becomes of an expert's routes: they are spread over holders, have equal parts behind all
 * gates of its node, or stay in their nodes, all of which get it. */
enum fate { SPREAD, DIVIDED, COVERED };

struct nodewise {
    struct mp_recent recent; /* first, as its hooks want it; cells [layers][experts] */
    struct mp_setting setting;
    struct mp_topology topology;        /* nodes of one rank are one node */
    struct mp_nodewise_options options; /* memory resolved to a number */
    bool rematerialises;
    struct mp_nodewise_costs costs, pooled;
    struct mp_nodewise_node node;
    struct mp_pieces pieces;
    struct mp_expert_chunks chunks;
    int64_t *total;  /* [experts] routes of all sources, as expected; then as they are */
    int32_t *order;  /* [experts] those that are everywhere, then hottest first */
    int32_t *other;  /* [experts] the order if gates are pooled */
    int64_t *demand; /* [nodes][experts] routes of a node's tokens, and what comes to it */
    double *work;    /* [nodes] routes per rank */
    int64_t *memory; /* of mp_nodewise_cover */
    struct way *way; /* [gates], of those of the node whose copies are placed */
    int32_t *gate;   /* [ranks] */
    int32_t *holder; /* [ranks of a node] */
    int32_t *with;   /* [nodes] */
    int32_t *taken;  /* [gates], of their ranks' experts: those that are sent ahead */
    int32_t *copies; /* [ranks] of experts that others own, in the plan so far */
    enum fate *fate; /* [experts] */
    int64_t *seen;   /* [2][layers][experts] routes of the last micro-batch, and of the one before:
                        backward may plan that once more */
    bool *pools;     /* [layers] whose gates are pooled */
    bool *ahead;     /* [layers][experts] that are sent ahead, to the ranks of sent_to */
};

static void create_parts(struct nodewise *self) {
    struct mp_arena *memory = mp_system_arena(self);
    int layers = self->setting.layers, experts = self->setting.experts,
        ranks = self->topology.ranks;
    int nodes = mp_topology_nodes(&self->topology), of_node = self->topology.ranks_per_node;
    int places = experts + ranks * self->options.memory; /* owners and every rank's copies */
    MP_TAKE_EACH(memory, experts, self->total, self->order, self->other, self->fate);
    MP_TAKE(memory, self->pools, layers);
    MP_TAKE(memory, self->demand, (size_t)experts * (size_t)nodes);
    MP_TAKE_EACH(memory, nodes, self->work, self->with);
    MP_TAKE(memory, self->memory, (size_t)nodes + 2 * (size_t)ranks + (size_t)experts);
    MP_TAKE_EACH(memory, ranks, self->way, self->taken, self->gate, self->copies);
    for (int rank = 0; rank < ranks && !memory->lacking; rank++)
        self->gate[rank] = rank / self->costs.ranks_per_gate;
    MP_TAKE(memory, self->ahead, (size_t)layers * (size_t)experts);
    MP_TAKE(memory, self->seen, 2 * (size_t)layers * (size_t)experts);
    MP_TAKE(memory, self->holder, of_node);
    mp_recent_create(memory, (size_t)layers * (size_t)experts, self->options.window, &self->recent);
    mp_nodewise_node_create(memory, of_node, experts, self->options.memory,
                            self->costs.product_routes, &self->node);
    mp_pieces_create(memory, experts, places, &self->pieces);
    mp_expert_chunks_create(memory, &self->topology, layers, places, &self->chunks);
}

static int least(int a, int b) {
    return a < b ? a : b;
}

enum { AUTO, YES, NO }; /* options.rematerialise */

/* Extra experts on a rank: its part of what its node has not of its own, and as many of another
 * rank's as that has, and some. */
static int copies_wanted(const struct nodewise *self) {
    const struct mp_topology *topology = &self->topology;
    int experts = self->setting.experts, wanted = experts / topology->ranks + 4;
    if (topology->ranks == 1)
        return 0;
    if (topology->ranks > topology->ranks_per_node)
        wanted += (experts - 1) / topology->ranks_per_node + 1;
    return least(wanted, experts);
}

/* As many as there is memory for, of all layers or of the two that have them at once. */
static int copies_that_fit(const struct nodewise *self, bool freed) {
    const struct mp_setting *setting = &self->setting;
    const int layers = freed && setting->layers > 2 ? 2 : setting->layers;
    double each = layers * ((double)setting->expert_bytes + (double)setting->gradient_bytes);
    double fit = setting->copies_memory > 0 ? setting->copies_memory / each : setting->experts;
    return (int)fmin(fit, setting->experts);
}

/* Copies are fetched again for backward only if hardly any could stay: the first ones save most.
 * Where some ranks own nothing, each takes one for its part and one to even out. */
static void settle_memory(struct nodewise *self) {
    const int wanted = copies_wanted(self);
    const int few = self->setting.experts < self->topology.ranks ? 2 : 1;
    const bool serves = self->setting.forward_only;
    self->rematerialises = !serves && (self->options.rematerialise == YES ||
                                       (self->options.rematerialise == AUTO &&
                                        copies_that_fit(self, false) < least(few, wanted)));
    if (self->options.memory == MP_AUTO)
        self->options.memory = copies_that_fit(self, serves || self->rematerialises);
    self->options.memory = least(self->options.memory, wanted);
}

static int settle_chunks(struct nodewise *self, struct mp_error *error) {
    const struct mp_setting *setting = &self->setting;
    int *chunks = &self->options.chunks;
    if (*chunks != MP_AUTO && (*chunks < 1 || *chunks > MP_MOST_DEGREE))
        return mp_fail(error, MP_EINVAL, "nodewise's chunks are 1 to %d, or auto", MP_MOST_DEGREE);
    if (setting->exchange == MP_EXCHANGE_FLAT && setting->exchange_degree <= 1)
        return MP_OK;
    if (*chunks > 1)
        return mp_fail(error, MP_EINVAL,
                       "nodewise's %d chunks of experts take a flat exchange without an "
                       "exchange-degree, not %s with %d",
                       *chunks, mp_exchange_name((enum mp_exchange_kind)setting->exchange),
                       setting->exchange_degree);
    *chunks = 1;
    return MP_OK;
}

static int nodewise_create(void *opaque, const struct mp_setting *setting, const void *options,
                           struct mp_error *error) {
    const struct mp_topology *topology = &setting->topology;
    struct nodewise *self = opaque;
    self->setting = *setting;
    self->topology = *topology;
    if (topology->ranks_per_node == 1 || topology->ranks_per_node > topology->ranks)
        self->topology.ranks_per_node = topology->ranks;
    self->options = *(const struct mp_nodewise_options *)options;
    settle_memory(self);
    self->setting.topology = self->topology;
    if (self->options.ranks_per_gate > 0 && self->options.ranks_per_gate < topology->ranks)
        self->setting.ranks_per_gate = self->options.ranks_per_gate;
    mp_nodewise_costs(&self->setting, self->rematerialises, &self->costs);
    self->pooled = self->costs; /* and stay so where memory limits copies: covered ones save more */
    if (self->options.pool && self->options.memory == copies_wanted(self))
        self->pooled = mp_nodewise_pooled(&self->costs, self->topology.ranks_per_node);
    MP_TRY(settle_chunks(self, error));
    create_parts(self);
    return MP_OK;
}

static int nodewise_copies_limit(const void *opaque) {
    return ((const struct nodewise *)opaque)->options.memory;
}

/* ---- what is where ---- */

static int node_size(const struct nodewise *self, int node) {
    return mp_topology_node_end(&self->topology, node) -
           mp_topology_node_begin(&self->topology, node);
}

static struct way *way_of(const struct nodewise *self, int rank) {
    return &self->way[self->gate[rank]];
}

static bool *ahead_of(const struct nodewise *self, int layer) {
    return &self->ahead[(size_t)layer * (size_t)self->setting.experts];
}

static int64_t *demand_of(const struct nodewise *self, int expert, int node) {
    return &self->demand[(size_t)node * (size_t)self->setting.experts + (size_t)expert];
}

/* Nodes that hold an expert, ascending. */
static int list_nodes(struct nodewise *self, const struct mp_placement *during, int expert) {
    int count = 0;
    for (int rank = mp_placement_next(during, expert, 0); rank >= 0;) {
        int node = mp_topology_node(&self->topology, rank);
        self->with[count++] = node;
        rank = mp_placement_next(during, expert, mp_topology_node_end(&self->topology, node));
    }
    return count;
}

/* Ranks of a node that do, counted from its first. */
static int list_holders(struct nodewise *self, const struct mp_placement *during, int expert,
                        int node) {
    int begin = mp_topology_node_begin(&self->topology, node), count = 0;
    int end = mp_topology_node_end(&self->topology, node);
    for (int rank = mp_placement_next(during, expert, begin); rank >= 0 && rank < end;
         rank = mp_placement_next(during, expert, rank + 1))
        self->holder[count++] = rank - begin;
    return count;
}

/* Extra experts that each rank has. */
static void count_copies(struct nodewise *self, const struct mp_placement *during) {
    memset(self->copies, 0, (size_t)self->topology.ranks * sizeof *self->copies);
    for (int expert = 0; expert < during->experts; expert++)
        for (int rank = mp_placement_next(during, expert, 0); rank >= 0;
             rank = mp_placement_next(during, expert, rank + 1))
            self->copies[rank] += rank != during->owner[expert];
}

/* ---- loads ---- */

/* Nothing has stayed from a micro-batch before it. */
static bool is_first(const struct mp_plan *plan) {
    return plan->micro_batch == 0 || !plan->policy->copies_stay;
}

static int64_t *seen_of(const struct nodewise *self, int micro_batch, int layer) {
    const size_t row = (size_t)(micro_batch % 2 * self->setting.layers + layer);
    return &self->seen[row * (size_t)self->setting.experts];
}

/* Loads as they were, in the micro-batch before or in the last iterations, from all ranks alike;
 * before there are any, all experts are alike. */
static void expect(struct nodewise *self, const struct mp_plan *plan) {
    const struct mp_setting *setting = &self->setting;
    const int experts = setting->experts, known = self->recent.count, ranks = self->topology.ranks;
    const int64_t *sum = self->recent.sum + (size_t)plan->layer * (size_t)experts;
    const int64_t routes = setting->tokens_per_rank * setting->top_k * ranks;
    for (int expert = 0; expert < experts; expert++) {
        int64_t total = !is_first(plan) ? seen_of(self, plan->micro_batch - 1, plan->layer)[expert]
                        : known > 0     ? sum[expert] / known
                                        : routes / experts;
        self->total[expert] = total;
        for (int node = 0; node < mp_topology_nodes(&self->topology); node++)
            *demand_of(self, expert, node) =
                total * mp_topology_node_end(&self->topology, node) / ranks -
                total * mp_topology_node_begin(&self->topology, node) / ranks;
    }
}

static void find_demand(struct nodewise *self, const struct mp_load *load,
                        const struct mp_plan *plan) {
    int nodes = mp_topology_nodes(&self->topology);
    mp_load_expert_totals(load, self->total);
    memcpy(seen_of(self, plan->micro_batch, plan->layer), self->total,
           (size_t)load->experts * sizeof *self->total);
    memset(self->demand, 0, (size_t)load->experts * (size_t)nodes * sizeof *self->demand);
    for (int source = 0; source < load->ranks; source++) {
        int64_t *demand = demand_of(self, 0, mp_topology_node(&self->topology, source));
        const uint32_t *count = &load->count[(size_t)source * (size_t)load->experts];
        for (int expert = 0; expert < load->experts; expert++)
            demand[expert] += count[expert];
    }
}

/* ---- what nodes get ---- */

/* Experts hottest first, but behind those that are everywhere.  Returns how many of these there
 * are. */
static int order_experts(struct nodewise *self, const struct mp_placement *during) {
    const int nodes = mp_topology_nodes(&self->topology), experts = during->experts;
    int everywhere = 0;
    mp_load_hottest(self->total, experts, experts, self->order);
    for (int i = 0; i < experts; i++) {
        int32_t expert = self->order[i];
        if (list_nodes(self, during, expert) < nodes)
            continue;
        for (int at = i; at > everywhere; at--)
            self->order[at] = self->order[at - 1];
        self->order[everywhere++] = expert;
    }
    return everywhere;
}

/* For how many more every node has room. */
static int room_of(const struct nodewise *self) {
    int room = self->setting.experts;
    for (int node = 0; node < mp_topology_nodes(&self->topology); node++) {
        int here = 0;
        for (int rank = mp_topology_node_begin(&self->topology, node);
             rank < mp_topology_node_end(&self->topology, node); rank++)
            here += self->options.memory - self->copies[rank];
        room = least(room, here);
    }
    return room;
}

/* Of several micro-batches: what is not copied before the first one's gate can be before the
 * second one's, on loads that are known then; and what is copied there serves all that are left. */
static double weight_of_way(const struct nodewise *self, const struct mp_plan *plan, bool early) {
    const int left = self->setting.micro_batches - plan->micro_batch;
    if (!early || self->setting.micro_batches <= 1 || !plan->policy->copies_stay)
        return 1;
    return plan->micro_batch == 0 ? WAY_AT_FIRST : 1. / left;
}

/* How many experts every node should have, those first in order, of at most `limit`; before an
 * iteration's first gate also whether the others are divided. */
static int choose_cover(struct nodewise *self, const struct mp_plan *plan, bool early,
                        int everywhere, int limit) {
    const struct mp_nodewise_experts all = {&self->topology, plan->during.owner, self->total,
                                            self->setting.experts, self->memory};
    const double hidden = early ? self->costs.hidden_forward : 0;
    bool *pools = &self->pools[plan->layer];
    const bool first = early && is_first(plan);
    struct mp_nodewise_costs costs = *pools && !first ? self->pooled : self->costs;
    double apart, together;
    int32_t *order = self->order;
    costs.way = self->pooled.way = weight_of_way(self, plan, early);
    if (!first)
        costs.copies_each = 0; /* those are there */
    else
        memcpy(self->other, order, (size_t)all.experts * sizeof *order);
    const int cover = mp_nodewise_cover(&costs, hidden, &all, everywhere, limit, order, &apart);
    if (!first || !(self->pooled.copies_each > 0))
        return cover;
    const int other =
        mp_nodewise_cover(&self->pooled, hidden, &all, 0, limit, self->other, &together);
    *pools = together < apart;
    if (!*pools)
        return cover;
    self->order = self->other;
    self->other = order;
    return other;
}

/* Settles every expert's fate.  Returns how many are in every node then. */
static int choose(struct nodewise *self, const struct mp_plan *plan, bool early) {
    const int experts = self->setting.experts, wanted = self->options.cover;
    const int everywhere = order_experts(self, &plan->during);
    int cover = everywhere;
    count_copies(self, &plan->during);
    const int room = early || self->options.correct ? room_of(self) : 0;
    memset(self->fate, 0, (size_t)experts * sizeof *self->fate);
    if (mp_topology_nodes(&self->topology) == 1)
        return 0;
    if (wanted == MP_AUTO)
        cover = choose_cover(self, plan, early, everywhere, least(experts, everywhere + room));
    else if (early)
        cover = least(wanted, everywhere + room);
    for (int i = everywhere; i < experts; i++)
        self->fate[self->order[i]] = i < cover                  ? COVERED
                                     : self->pools[plan->layer] ? DIVIDED
                                                                : SPREAD;
    return cover;
}

/* How many of the covered experts behind each gate are sent ahead: as many as gates have no time
 * for in forward, and have in backward, beside gradients. */
static int count_ahead(const struct nodewise *self, int layer, int cover) {
    const struct mp_nodewise_costs *costs = &self->costs;
    const struct mp_setting *setting = &self->setting;
    const int nodes = mp_topology_nodes(&self->topology), ranks = self->topology.ranks;
    if (self->options.ahead != MP_AUTO)
        return self->options.ahead;
    if (layer < FIRST_AHEAD)
        return 0;
    const double coming = cover * (double)(nodes - 1) / nodes;
    const double forward =
        setting->non_moe_seconds +
        (double)(setting->tokens_per_rank * setting->top_k) * setting->seconds_per_route +
        (double)setting->experts / ranks * setting->seconds_per_expert;
    double late = coming * costs->fetch_between - forward;
    double room = 2 * forward - coming * costs->reduce_between -
                  2 * (double)setting->attention_bytes / setting->bandwidth;
    double sent = fmin(late, room) / (costs->fetch_between * (nodes - 1) * costs->gates);
    return sent > 0 ? (int)sent : 0;
}

/* The hottest covered ones behind each gate. */
static void choose_ahead(struct nodewise *self, const struct mp_plan *plan, int cover) {
    bool *ahead = ahead_of(self, plan->layer);
    const int each = plan->policy->updates_early ? count_ahead(self, plan->layer, cover) : 0;
    memset(ahead, 0, (size_t)self->setting.experts * sizeof *ahead);
    memset(self->taken, 0, (size_t)self->topology.ranks * sizeof *self->taken);
    for (int i = 0; i < cover && each > 0; i++) {
        int expert = self->order[i];
        int32_t *taken = &self->taken[self->gate[plan->during.owner[expert]]];
        ahead[expert] = *taken < each;
        *taken += ahead[expert];
    }
}

/* Where a node has experts that are sent ahead: at the owner's place in its node, so that gates
 * have equal parts of them, and where an expert is does not depend on where it was. */
static int sent_to(const struct nodewise *self, int node, int owner) {
    int place =
        owner - mp_topology_node_begin(&self->topology, mp_topology_node(&self->topology, owner));
    return place % node_size(self, node);
}

/* To ranks that have a copy now. */
static int send_ahead(const struct nodewise *self, struct mp_plan *plan, struct mp_error *error) {
    const bool *ahead = ahead_of(self, plan->layer);
    for (int expert = 0; expert < plan->experts; expert++)
        for (int node = 0; ahead[expert] && node < mp_topology_nodes(&self->topology); node++) {
            int owner = plan->during.owner[expert];
            int rank = mp_topology_node_begin(&self->topology, node) + sent_to(self, node, owner);
            if (mp_topology_node(&self->topology, owner) != node &&
                mp_placement_holds(&plan->during, expert, rank))
                MP_TRY(mp_plan_send_ahead(plan, expert, rank, error));
        }
    return MP_OK;
}

/* Into how many chunks a rank's experts fall: one where gates are busy with gradients most of the
 * time, and what rows between nodes win under products they lose, unless all gates bring them in
 * alike; and where so many messages more take half as long as the products that have to hide them,
 * which fall into chunks unevenly. */
static int chunks_of(const struct nodewise *self, const struct mp_plan *plan, int cover) {
    const struct mp_nodewise_costs *costs = &self->costs;
    const struct mp_setting *setting = &self->setting;
    const int nodes = mp_topology_nodes(&self->topology), ranks = self->topology.ranks;
    int64_t all = 0, left = 0;
    if (self->options.chunks != MP_AUTO)
        return self->options.chunks;
    for (int i = 0; i < setting->experts; i++) {
        all += self->total[self->order[i]];
        left += i < cover || nodes == 1 ? 0 : self->total[self->order[i]];
    }
    const int chunks = left > 0 ? CHUNKS_WITH_AWAY : CHUNKS;
    double products = ((double)all * setting->seconds_per_route +
                       setting->experts * setting->seconds_per_expert) /
                      ranks;
    double latency = nodes == 1 || left > 0 ? setting->latency : setting->latency_in_node;
    double gradients = cover * (double)(nodes - 1) / nodes * costs->reduce_between;
    const bool last = plan->micro_batch + 1 >= setting->micro_batches || !plan->policy->copies_stay;
    bool full = last && left > 0 && !self->pools[plan->layer] &&
                gradients > FULL_GATES * costs->hidden_backward;
    return full || 2 * (chunks - 1) * latency > products / 2 ? 1 : chunks;
}

/* ---- who in a node computes what ---- */

static void count_work(struct nodewise *self, const struct mp_placement *during) {
    int nodes = mp_topology_nodes(&self->topology);
    for (int node = 0; node < nodes; node++)
        self->work[node] = 0;
    for (int expert = 0; expert < during->experts; expert++) {
        int count = list_nodes(self, during, expert);
        for (int i = 0; i < count; i++) {
            int node = self->with[i];
            self->work[node] += (double)*demand_of(self, expert, node) / node_size(self, node);
        }
    }
}

/* Routes whose node has not their expert go to the node with least to do of those that have. */
static void assign_nodes(struct nodewise *self, const struct mp_placement *during) {
    int nodes = mp_topology_nodes(&self->topology);
    count_work(self, during);
    for (int expert = 0; expert < during->experts; expert++) {
        int count = list_nodes(self, during, expert);
        if (self->fate[expert] == COVERED)
            continue;
        for (int node = 0, next = 0; node < nodes && count < nodes; node++) {
            int64_t *routes = demand_of(self, expert, node);
            bool holds = next < count && self->with[next] == node;
            int taker = self->with[0];
            next += holds;
            if (*routes == 0 || holds)
                continue;
            for (int i = 1; i < count; i++)
                if (self->work[self->with[i]] < self->work[taker])
                    taker = self->with[i];
            *demand_of(self, expert, taker) += *routes;
            self->work[taker] += (double)*routes / node_size(self, taker);
            *routes = 0;
        }
    }
}

/* Nothing is computed yet, and gates have what owners send. */
static void begin_node(struct nodewise *self, const struct mp_placement *during, int node) {
    const int begin = mp_topology_node_begin(&self->topology, node), size = node_size(self, node);
    mp_nodewise_node_begin(&self->node, size);
    for (int rank = begin; rank < begin + size; rank++) {
        *way_of(self, rank) = (struct way){0};
        self->node.copies[rank - begin] = self->copies[rank];
    }
    for (int expert = 0; expert < during->experts; expert++) {
        int owner = during->owner[expert];
        if (self->fate[expert] == COVERED && owner >= begin && owner < begin + size)
            way_of(self, owner)->out++;
    }
}

/* The rank with least to do among those with room whose gate has less to take in, and to send out
 * if the copy goes on from there, than `most`; or -1. */
static int emptiest(const struct nodewise *self, int begin, int most, bool goes_on) {
    const struct mp_nodewise_node *node = &self->node;
    int found = -1;
    for (int rank = 0; rank < node->ranks; rank++) {
        const struct way *way = way_of(self, begin + rank);
        if (node->copies[rank] < self->options.memory && way->in < most &&
            way->out + goes_on <= most && (found < 0 || node->load[rank] < node->load[found]))
            found = rank;
    }
    return found;
}

/* A covered expert, for which there is room (room_of), unless divided ones take it before the gate.
 * Experts go from node to node (reference/schedule/hops.h): not on from the last one, behind which
 * their owner's comes again. */
static void place(struct nodewise *self, int node, int expert, int owner, bool ahead) {
    const int begin = mp_topology_node_begin(&self->topology, node);
    const bool goes_on =
        mp_topology_node(&self->topology, owner) != (node + 1) % mp_topology_nodes(&self->topology);
    int rank = ahead ? sent_to(self, node, owner) : -1;
    if (rank >= 0 && self->node.copies[rank] >= self->options.memory)
        rank = -1;
    for (int most = 1; rank < 0 && most <= self->setting.experts; most++)
        rank = emptiest(self, begin, most, goes_on);
    if (rank < 0)
        return;
    way_of(self, begin + rank)->in++;
    way_of(self, begin + rank)->out += goes_on;
    self->node.copies[rank]++;
    mp_nodewise_node_add(&self->node, rank, expert, *demand_of(self, expert, node), false);
}

/* Where a divided expert is behind a gate: with its holder, or with the rank that has least to do,
 * if any has room. */
static int holder_behind(const struct nodewise *self, int begin, int gate, int holder) {
    const struct mp_nodewise_node *node = &self->node;
    int found = -1;
    if (self->gate[begin + holder] == gate)
        return holder;
    for (int rank = 0; rank < node->ranks; rank++)
        if (self->gate[begin + rank] == gate && node->copies[rank] < self->options.memory &&
            (found < 0 || node->load[rank] < node->load[found]))
            found = rank;
    return found;
}

/* An expert's routes in a node, in equal parts to its holders; before the gate, if that is one
 * rank, to a rank behind every gate. */
static void divide(struct nodewise *self, int node, int expert, int holders, bool early) {
    const int begin = mp_topology_node_begin(&self->topology, node), end = begin + self->node.ranks;
    const int64_t routes = *demand_of(self, expert, node);
    if (early && holders == 1) {
        const int holder = self->holder[0];
        holders = 0;
        for (int gate = self->gate[begin]; gate <= self->gate[end - 1]; gate++) {
            int rank = holder_behind(self, begin, gate, holder);
            if (rank < 0)
                continue;
            self->node.copies[rank] += rank != holder;
            self->holder[holders++] = rank;
        }
    }
    for (int i = 0; i < holders; i++)
        mp_nodewise_node_add(&self->node, self->holder[i], expert,
                             routes / holders + (i < routes % holders), holders > 1);
}

/* An expert's routes to those who hold it, or get it. */
static void fill(struct nodewise *self, const struct mp_plan *plan, int node, int expert,
                 int holders, bool early) {
    if (holders == 0)
        place(self, node, expert, plan->during.owner[expert],
              early && ahead_of(self, plan->layer)[expert]);
    else if (self->fate[expert] == DIVIDED)
        divide(self, node, expert, holders, early);
    else
        mp_nodewise_node_spread(&self->node, expert, self->holder, holders,
                                *demand_of(self, expert, node));
}

/* Experts that leave no choice first: with one holder in the node, sent ahead, or divided. */
static void fill_node(struct nodewise *self, const struct mp_plan *plan, int node, bool early) {
    const bool *ahead = ahead_of(self, plan->layer);
    begin_node(self, &plan->during, node);
    for (int choice = 0; choice < 2; choice++)
        for (int i = 0; i < plan->experts; i++) {
            int expert = self->order[i];
            if (*demand_of(self, expert, node) == 0)
                continue;
            int holders = list_holders(self, &plan->during, expert, node);
            bool free = holders == 0 ? !(early && ahead[expert])
                                     : holders > 1 && self->fate[expert] != DIVIDED;
            if (free == choice)
                fill(self, plan, node, expert, holders, early);
        }
}

/* What a node's ranks compute and have not.  Experts come in where they were placed, whoever else
 * gets a copy: gates have their parts by that. */
static int add_copies(struct nodewise *self, struct mp_plan *plan, int node, int placed,
                      struct mp_error *error) {
    const int begin = mp_topology_node_begin(&self->topology, node);
    for (int rank = 0; rank < self->node.ranks; rank++)
        for (int32_t at = self->node.first[rank]; at >= 0; at = self->node.share[at].next) {
            const struct mp_nodewise_share *share = &self->node.share[at];
            if (!mp_placement_holds(&plan->during, share->expert, begin + rank))
                MP_TRY((at < placed && !share->fixed ? mp_plan_add_entry : mp_plan_add_copy)(
                    plan, share->expert, begin + rank, MP_STAGE_BEFORE_GATE, error));
        }
    return MP_OK;
}

static int add_pieces(struct nodewise *self, int node, struct mp_error *error) {
    int begin = mp_topology_node_begin(&self->topology, node);
    for (int rank = 0; rank < self->node.ranks; rank++)
        for (int32_t at = self->node.first[rank]; at >= 0; at = self->node.share[at].next)
            MP_TRY(mp_pieces_add(&self->pieces, self->node.share[at].expert, begin + rank,
                                 self->node.share[at].routes, error));
    return MP_OK;
}

/* Copies that are made after the gate travel under the chunks before theirs, which is the last one
 * and smaller than others (reference/plan/chunks.h). */
static struct mp_nodewise_hidden hidden_of(const struct nodewise *self, bool early, int chunks) {
    const struct mp_nodewise_node *node = &self->node;
    double before = chunks > 1 ? 1 - 0.5 / (chunks - 1) : 0, mean = 0;
    if (early)
        return (struct mp_nodewise_hidden){self->costs.hidden_forward, self->costs.hidden_inside};
    for (int rank = 0; rank < node->ranks; rank++)
        mean += (double)node->load[rank] / node->ranks;
    return (struct mp_nodewise_hidden){before * mean * self->setting.seconds_per_route,
                                       self->costs.hidden_inside};
}

static int plan_node(struct nodewise *self, struct mp_plan *plan, int node, bool early,
                     struct mp_error *error) {
    fill_node(self, plan, node, early);
    const int placed = self->node.shares;
    if ((early ? self->options.even : self->options.correct) &&
        !mp_nodewise_node_even_out(&self->node, &self->costs, hidden_of(self, early, plan->degree),
                                   self->options.memory))
        fill_node(self, plan, node, early);
    return early ? add_copies(self, plan, node, placed, error) : add_pieces(self, node, error);
}

/* Of loads that are expected before the gate, or known behind it. */
static int plan_layer(struct nodewise *self, struct mp_plan *plan, bool early,
                      struct mp_error *error) {
    const int cover = choose(self, plan, early);
    if (early)
        plan->degree = chunks_of(self, plan, cover);
    if (early && is_first(plan))
        choose_ahead(self, plan, cover);
    assign_nodes(self, &plan->during);
    mp_pieces_clear(&self->pieces);
    for (int node = 0; node < mp_topology_nodes(&self->topology); node++)
        MP_TRY(plan_node(self, plan, node, early, error));
    return MP_OK;
}

/* ---- the system ---- */

static void nodewise_policy(const void *opaque, struct mp_policy *policy) {
    policy->fetch_early = ((const struct nodewise *)opaque)->options.early;
    policy->weights_behind = true;
    policy->rematerialise = ((const struct nodewise *)opaque)->rematerialises;
    policy->copies_stay = policy->updates_early = !policy->forward_only && !policy->rematerialise;
}

static int nodewise_before_gate(void *opaque, struct mp_plan *plan, struct mp_error *error) {
    expect(opaque, plan);
    return plan_layer(opaque, plan, true, error);
}

static int nodewise_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                               struct mp_error *error) {
    struct nodewise *self = opaque;
    find_demand(self, load, plan);
    MP_TRY(plan_layer(self, plan, false, error));
    MP_TRY(mp_plan_dispatch_pieces(plan, load, &self->pieces, MP_CUT_NEAREST_FIRST, error));
    if (plan->degree > 1 && self->options.chunks != 1)
        mp_expert_chunks_cut(&self->chunks, plan);
    return send_ahead(self, plan, error);
}

static int nodewise_after_step(void *opaque, int64_t iteration, const struct mp_load load[],
                               const struct mp_placement home[], struct mp_rehome *change,
                               struct mp_error *error) {
    struct nodewise *self = opaque;
    (void)iteration, (void)home, (void)change, (void)error;
    mp_recent_push_totals(&self->recent, load, self->setting.layers);
    return MP_OK;
}

const struct mp_system mp_system_nodewise = {
    .abi = MP_SYSTEM_ABI,
    .name = "nodewise",
    .title = "Nodewise: hot experts once in every node, and even ranks",
    .source = "moeperf's own",
    .models =
        "Every node gets the hottest experts once, as many as save more rows between nodes than "
        "their own way costs beyond what attention hides, and spreads them over its ranks; inside "
        "a node, ranks that have more than others give routes away with a copy. Both before the "
        "gate on the last loads and, where that pays, after it on the actual ones. Where a node's "
        "gates win by it, experts that are in it alone are behind each. Rows travel in chunks of "
        "whole experts, under the products of others, and on their way back before weights have "
        "their gradients. Exact and dropless.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_PLANS_BEFORE_GATE | MP_SYSTEM_UNEVEN_EXPERTS |
                    MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct mp_nodewise_options),
    .size = sizeof(struct nodewise),
    .create = nodewise_create,
    .policy = nodewise_policy,
    .copies_limit = nodewise_copies_limit,
    .before_gate = nodewise_before_gate,
    .after_gate = nodewise_after_gate,
    .after_step = nodewise_after_step,
    .save = mp_recent_save,
    .load = mp_recent_load,
};
