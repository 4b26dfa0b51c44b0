/* UltraEP: quotas for copies of hot experts, on the actual loads (arXiv 2606.04101, version 3;
 * Dots-Infra/UltraEP, 1.0.0, csrc/kernels/placement.cu).
 *
 * Experts have fixed owners.  Once the gate has spoken, in every layer and micro-batch, ranks above
 * a bound give routes to ranks of their node (NVLink domain) that are below it, with copies of the
 * experts in a few slots of every rank.  Exact: nothing is dropped and no token changes its expert.
 *
 *   a try     with one bound: the fullest rank first, its experts from the hottest on: each gives
 *             what its rank has too much to the rank of the node that has most room and a slot, as
 *             long as that gets the least quota, and keeps at least one route itself
 *   first     the bound is the mean of the node's ranks times (1 + tolerance), and up to twice a
 *             hundredth of the fullest rank more.  The least quota is then what the rank still has
 *             too much over how many could take some
 *   then      if all that failed, `least-quota` is, and the bound is searched: four at a time
 *             between the mean and the fullest rank.  What fails with one bound may do with a
 *             smaller one: the same four as the released kernel's are tried
 *   routes    a rank's own routes to its own copy first; the others where there is room.  (The
 *             source cuts each rank's in proportion, here they are cut in order: as many for every
 *             copy, from other sources)
 *
 * Copies lie in buffers that all layers share, and are fetched again for backward; gradients go
 * home.  Ties go to the lower id.  Means are taken in double precision (the source: single).  Ours
 * are uneven numbers of experts and nodes.
 *
 * 256 experts on 32 ranks: about 90 us in all (moeperf-bench plan). */
#include <math.h>

#include "reference/plan/owned.h"
#include "reference/plan/pieces.h"
#include "reference/plan/queue.h"
#include "reference/plan/system.h"

struct ultraep_options {
    int redundant;       /* slots for copies of a layer's experts on every rank */
    double threshold;    /* bound over the mean from which on is searched, >= 1 */
    double tolerance;    /* that the first bounds have above it */
    int64_t least_quota; /* routes, of the bounds searched */
    bool empty_owners;   /* owners may give away all routes of an expert */
    bool locality;       /* a rank's own routes first to its own copy */
};

#define FIELD(member) offsetof(struct ultraep_options, member)

static const struct mp_option option_table[] = {
    {"redundant", MP_OPTION_INT, FIELD(redundant), "experts", "2", 0, 65536, NULL,
     "slots of every rank for copies of a layer's experts (no default in the source; 2 in its "
     "examples)"},
    {"threshold", MP_OPTION_DOUBLE, FIELD(threshold), "", "1", 1, 1e9, NULL,
     "largest over mean load of a node's ranks below which no bound is tried"},
    {"tolerance", MP_OPTION_DOUBLE, FIELD(tolerance), "", "0.01", 0, 1e9, NULL,
     "how far above that the first bound is, over it"},
    {"least-quota", MP_OPTION_INT64, FIELD(least_quota), "routes", "1024", 1, 1e15, NULL,
     "fewest routes of a copy where the first bounds fail and one is searched"},
    {"empty-owners", MP_OPTION_BOOL, FIELD(empty_owners), "", "no", 0, 0, NULL,
     "owners may give away all routes of an expert"},
    {"locality", MP_OPTION_BOOL, FIELD(locality), "", "yes", 0, 0, NULL,
     "a rank's own routes go to its own copy first"},
    {0},
};

/* Routes of an expert that another rank computes. */
struct quota {
    int64_t routes;
    int32_t expert, rank;
};

/* What a decision for one layer is made with, and what it comes to. */
struct ultraep {
    struct ultraep_options options;
    int ranks, experts;
    struct mp_pieces pieces;       /* who computes how many routes of which expert, owners first */
    int64_t *total;                /* [experts], less the quotas of ranks but the owner */
    int32_t *order;                /* [experts], hottest first */
    struct mp_owned owned;         /* in that order */
    int32_t *copies;               /* [ranks] */
    struct mp_queue fullest, room; /* ranks of a node */
    struct quota *quota;           /* [experts + 2 * ranks], of the node */
    int quotas;
};

static int ultraep_create(void *opaque, const struct mp_setting *setting, const void *options,
                          struct mp_error *error) {
    struct mp_arena *memory = mp_system_arena(opaque);
    const int ranks = setting->topology.ranks, experts = setting->experts;
    const int quotas = experts + 2 * ranks; /* each fills a rank, ends an expert or relieves a rank,
                                               for good */
    struct ultraep *self = opaque;
    (void)error;
    self->options = *(const struct ultraep_options *)options;
    self->ranks = ranks;
    self->experts = experts;
    mp_owned_create(memory, ranks, experts, &self->owned);
    mp_pieces_create(memory, experts, experts + quotas, &self->pieces);
    mp_queue_create(memory, ranks, &self->fullest);
    mp_queue_create(memory, ranks, &self->room);
    MP_TAKE_EACH(memory, experts, self->total, self->order);
    MP_TAKE(memory, self->copies, ranks);
    MP_TAKE(memory, self->quota, quotas);
    return MP_OK;
}

enum { FIRST_TRIES = 3, PROBES = 4 };

/* An expert's routes to those with most room.  Returns what of `need` is left. */
static int64_t give(struct ultraep *self, int expert, int64_t least, int64_t need) {
    int64_t routes = self->total[expert];

    if (routes > 0 && !self->options.empty_owners)
        routes--;
    while (need > 0 && routes > 0 && self->room.count > 0) {
        int64_t room = (int64_t)self->room.item[0].key, quota = need < room ? need : room;
        int32_t rank = self->room.item[0].id;
        quota = routes < quota ? routes : quota;
        /* Without a least quota: that which all who could take some would share. */
        if (quota < (least > 0 ? least : (need + self->room.count - 1) / self->room.count))
            break;
        self->quota[self->quotas++] = (struct quota){quota, expert, rank};
        if (++self->copies[rank] == self->options.redundant || quota == room)
            mp_queue_pop(&self->room);
        else
            mp_queue_change_first(&self->room, (double)(room - quota));
        need -= quota;
        routes -= quota;
    }
    return need;
}

/* Quotas with which no rank from `first` on is above the bound; false: none were found. */
static bool try_bound(struct ultraep *self, int first, int end, int64_t bound, int64_t least) {
    const struct mp_owned *owned = &self->owned;
    self->quotas = self->fullest.count = self->room.count = 0;
    for (int rank = first; rank < end; rank++) {
        self->copies[rank] = 0;
        if (owned->load[rank] > bound)
            mp_queue_push(&self->fullest, (double)owned->load[rank], rank);
        else if (owned->load[rank] < bound && self->options.redundant > 0)
            mp_queue_push(&self->room, (double)(bound - owned->load[rank]), rank);
    }
    while (self->fullest.count > 0) {
        int32_t rank = mp_queue_pop(&self->fullest).id;
        int64_t need = owned->load[rank] - bound;
        for (int32_t at = owned->begin[rank]; at < owned->begin[rank + 1] && need > 0; at++)
            need = give(self, owned->expert[at], least, need);
        if (need > 0)
            return false;
    }
    return true;
}

/* The bound of the released kernel's search: what four tries at once narrow down. */
static int64_t search(struct ultraep *self, int first, int end, int64_t low, int64_t high) {
    if (try_bound(self, first, end, low, self->options.least_quota))
        return low;
    if (low < high)
        low++;
    while (low < high) {
        int64_t range = high - low, before = low;
        int probe = 0;
        for (; probe < PROBES; probe++) {
            int64_t bound =
                range <= PROBES ? low + probe : low + range * (probe + 1) / (PROBES + 1);
            if (bound >= high)
                return high;
            if (try_bound(self, first, end, bound, self->options.least_quota)) {
                high = bound;
                break;
            }
            before = bound + 1;
        }
        if (range <= PROBES)
            return high;
        low = before;
    }
    return high;
}

static void decide_node(struct ultraep *self, int first, int end) {
    const int64_t *load = self->owned.load;
    int64_t all = 0, most = 0;

    for (int rank = first; rank < end; rank++) {
        all += load[rank];
        most = load[rank] > most ? load[rank] : most;
    }
    double mean = (double)all / (end - first);
    int64_t low = (int64_t)ceil(mean * self->options.threshold), high = most > low ? most : low;
    int64_t bound = (int64_t)ceil((double)low * (1 + self->options.tolerance));
    int64_t step = (high + 99) / 100 > 1 ? (high + 99) / 100 : 1;
    for (int tries = 0; tries < FIRST_TRIES; tries++) {
        if (try_bound(self, first, end, bound, 0))
            return;
        bound = bound + step < high ? bound + step : high;
    }
    bound = search(self, first, end, low, high);
    try_bound(self, first, end, bound, self->options.least_quota);
}

/* On self->total, of all sources. */
static int decide(struct ultraep *self, const struct mp_topology *topology, const int32_t owner[],
                  struct mp_error *error) {
    mp_load_hottest(self->total, self->experts, self->experts, self->order);
    mp_owned_list(&self->owned, owner, self->total, self->order);
    mp_pieces_clear(&self->pieces);
    for (int node = 0; node < mp_topology_nodes(topology); node++) {
        int first = mp_topology_node_begin(topology, node);
        int end = mp_topology_node_end(topology, node);
        decide_node(self, first, end);
        for (int index = 0; index < self->quotas; index++)
            self->total[self->quota[index].expert] -= self->quota[index].routes;
        for (int32_t at = self->owned.begin[first]; at < self->owned.begin[end]; at++) {
            int expert = self->owned.expert[at];
            MP_TRY(mp_pieces_add(&self->pieces, expert, owner[expert], self->total[expert], error));
        }
        for (int index = 0; index < self->quotas; index++)
            MP_TRY(mp_pieces_add(&self->pieces, self->quota[index].expert, self->quota[index].rank,
                                 self->quota[index].routes, error));
    }
    return MP_OK;
}

static int ultraep_copies_limit(const void *opaque) {
    const struct ultraep *self = opaque;

    int redundant = self->options.redundant, experts = self->experts;

    if (self->ranks == 1)
        return 0;
    return redundant < experts ? redundant : experts;
}

/* Copies of all layers share their slots. */
static void ultraep_policy(const void *opaque, struct mp_policy *policy) {
    (void)opaque;
    policy->rematerialise = true;
}

static int ultraep_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                              struct mp_error *error) {
    struct ultraep *self = opaque;

    mp_load_expert_totals(load, self->total);
    MP_TRY(decide(self, &plan->topology, plan->during.owner, error));
    return mp_plan_dispatch_pieces(plan, load, &self->pieces,
                                   self->options.locality ? MP_CUT_LOCAL_FIRST : MP_CUT_IN_ORDER,
                                   error);
}

const struct mp_system mp_system_ultraep = {
    .abi = MP_SYSTEM_ABI,
    .name = "ultraep",
    .title = "UltraEP: quotas for copies of hot experts, on the actual loads",
    .source = "UltraEP, arXiv 2606.04101; Dots-Infra/UltraEP",
    .models =
        "Modelled: once the gate has spoken, in every layer and micro-batch, copies of hot experts "
        "in a few slots of every rank of the node, with a quota of routes each, by the released "
        "search for the smallest bound of a rank's load; exact and dropless. Copies are exposed, "
        "freed after forward and fetched again for backward, and send their gradients home. A "
        "rank's own routes go to its own copy first, the others in order (the source: in "
        "proportion). Uneven numbers of experts, ranks and nodes are our own. Not modelled: tiles "
        "that ranks with little to send relay for others, and the planner's time on a GPU.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct ultraep_options),
    .size = sizeof(struct ultraep),
    .create = ultraep_create,
    .copies_limit = ultraep_copies_limit,
    .policy = ultraep_policy,
    .after_gate = ultraep_after_gate,
};
