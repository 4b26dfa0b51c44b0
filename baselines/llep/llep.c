/* LLEP: least-loaded expert parallelism (arXiv 2601.17111; SalesforceAIResearch/LeastLoadedEP).
 *
 * Experts have fixed owners.  Once the gate has spoken, and only if loads are skewed enough, the
 * experts that their owners can't compute within a cap spill routes to the least loaded ranks,
 * which get the parameters for this layer and send their gradients home.  Exact: nothing is dropped
 * and no token changes its expert.
 *
 * The source is known at second hand; where it is silent:
 *   trigger   largest over mean load of the experts, as in the paper; a port takes that of ranks
 *   cap       alpha * total / ranks rounded up, so that with alpha 1 there is room for everything
 *   order     experts by load, largest first, ties by lower id; helpers by what they have plus what
 *             their owners' experts not looked at yet will bring, ties by lower id
 *   room      of an owner: cap less what it has; of a helper: that less what is to come
 *   minimum   a piece below the smallest GEMM is not made: as the least loaded helper gets the
 *             largest piece, the search ends there and the rest stays with the owner, above the cap
 *   routes    an expert's routes, source after source, are cut where pieces end: the owner's first,
 *             then the helpers' in the order in which they were found
 * Any number of experts and ranks will do; that is our own, as is a limit of copies. */
#include <math.h>
#include <string.h>

#include "reference/plan/owned.h"
#include "reference/plan/pieces.h"
#include "reference/plan/queue.h"
#include "reference/plan/system.h"

enum trigger { PER_EXPERT, PER_RANK };

struct llep_options {
    int trigger;           /* enum trigger */
    double threshold;      /* lambda, largest over mean load, from which on routes are spilled */
    double alpha;          /* cap of a rank over the mean load of ranks */
    int64_t smallest_gemm; /* m, fewest routes that are spilled to one helper */
    int copies;            /* most foreign experts of a layer on a rank, or MP_ALL */
};

#define FIELD(member) offsetof(struct llep_options, member)

static const struct mp_option option_table[] = {
    {"trigger", MP_OPTION_CHOICE, FIELD(trigger), "", "per-expert", 0, 0, "per-expert per-rank",
     "whose largest load over the mean is compared with the threshold: that of experts (the paper) "
     "or of the ranks that own them (a port)"},
    {"threshold", MP_OPTION_DOUBLE, FIELD(threshold), "", "1.3", 0, 1e9, NULL,
     "largest over mean load (lambda) below which nothing is spilled"},
    {"alpha", MP_OPTION_DOUBLE, FIELD(alpha), "", "1", 0, 1e6, NULL,
     "most routes of a rank over the mean of ranks, as far as spilling can do it (a port: 1.1)"},
    {"smallest-gemm", MP_OPTION_INT64, FIELD(smallest_gemm), "routes", "1024", 1, 1e15, NULL,
     "fewest routes of an expert that are spilled to one rank"},
    {"copies", MP_OPTION_COUNT, FIELD(copies), "experts", "all", 0, 65536, NULL,
     "most foreign experts of a layer that a rank takes (not in the paper)"},
    {0},
};

/* What a decision for one layer is made with, and what it comes to. */
struct llep {
    struct llep_options options;
    int copies; /* foreign experts of a layer on a rank at most */
    int ranks, experts;
    struct mp_pieces pieces; /* who computes how many routes of which expert; filled if active */
    bool active;             /* loads were skewed enough */
    int64_t cap;             /* routes of a rank; helpers never get more */
    int64_t *load;           /* [ranks], routes that each rank computes; filled if active */
    struct mp_owned owned;
    int64_t *total;          /* [experts] */
    int32_t *order;          /* [experts], working memory as below */
    int32_t *foreign;        /* [ranks], experts of others on each rank */
    struct mp_queue helpers; /* ranks with room, by it */
};

/* A rank takes experts that it does not own, each with at least the smallest GEMM's routes, up to
 * the cap. */
static int foreign_limit(const struct mp_setting *setting, const struct llep_options *options) {
    double cap = ceil(options->alpha * (double)setting->tokens_per_rank * setting->top_k);
    double pieces = floor(cap / (double)options->smallest_gemm);
    int limit = setting->experts - setting->experts / setting->topology.ranks;

    if (limit > options->copies)
        limit = options->copies;
    return pieces < limit ? (int)pieces : limit;
}

static int llep_create(void *opaque, const struct mp_setting *setting, const void *options,
                       struct mp_error *error) {
    struct mp_arena *memory = mp_system_arena(opaque);
    const int ranks = setting->topology.ranks, experts = setting->experts;
    struct llep *self = opaque;
    (void)error;
    self->options = *(const struct llep_options *)options;
    self->copies = foreign_limit(setting, &self->options);
    self->ranks = ranks;
    self->experts = experts;
    mp_owned_create(memory, ranks, experts, &self->owned);
    /* Every piece is an owner's, ends an expert or fills a helper, for good. */
    mp_pieces_create(memory, experts, 2 * experts + ranks, &self->pieces);
    mp_queue_create(memory, ranks, &self->helpers);
    MP_TAKE_EACH(memory, ranks, self->load, self->foreign);
    MP_TAKE_EACH(memory, experts, self->total, self->order);
    return MP_OK;
}

static int64_t largest(const int64_t load[], int count) {
    int64_t most = 0;

    for (int index = 0; index < count; index++)
        if (load[index] > most)
            most = load[index];
    return most;
}

/* Whether what every owner would compute is skewed enough. */
static bool is_skewed(const struct llep *self, int64_t total) {
    bool of_ranks = self->options.trigger == PER_RANK;
    int items = of_ranks ? self->ranks : self->experts;
    int64_t most = largest(of_ranks ? self->owned.load : self->total, items);

    return total > 0 && (double)most * items >= self->options.threshold * (double)total;
}

/* The ranks with room for a piece, the one with most room first.  Their own experts fit, so what is
 * to come to them stays as it is; a rank whose own experts don't fit never has room, as it keeps of
 * them what fills it. */
static void queue_helpers(struct llep *self) {
    self->helpers.count = 0;
    for (int rank = 0; rank < self->ranks && self->copies > 0; rank++)
        if (self->owned.load[rank] < self->cap)
            mp_queue_push(&self->helpers, (double)(self->cap - self->owned.load[rank]), rank);
}

/* Spills as many of an expert's routes as helpers take.  None gets a second piece of the expert: it
 * is full, or nothing is left. */
static int spill(struct llep *self, int expert, int64_t *routes, struct mp_error *error) {
    while (*routes > 0 && self->helpers.count > 0) {
        struct mp_queued helper = self->helpers.item[0];
        int64_t room = (int64_t)helper.key, piece = *routes < room ? *routes : room;
        if (piece < self->options.smallest_gemm)
            return MP_OK;
        *routes -= piece;
        self->load[helper.id] += piece;
        if (++self->foreign[helper.id] == self->copies || piece == room)
            mp_queue_pop(&self->helpers);
        else
            mp_queue_change_first(&self->helpers, (double)(room - piece));
        MP_TRY(mp_pieces_add(&self->pieces, expert, helper.id, piece, error));
    }
    return MP_OK;
}

/* The owner's piece is to come first but is known last: what nobody else takes is added to it. */
static int place(struct llep *self, int expert, int owner, struct mp_error *error) {
    int64_t routes = self->total[expert], room = self->cap - self->load[owner];
    int64_t kept = routes < room ? routes : room > 0 ? room : 0;
    int64_t left = routes - kept;
    int32_t first = self->pieces.count;

    MP_TRY(mp_pieces_add(&self->pieces, expert, owner, routes, error));
    MP_TRY(spill(self, expert, &left, error));
    if (routes > 0)
        self->pieces.item[first].routes = kept + left;
    self->load[owner] += kept + left;
    return MP_OK;
}

/* On self->total, of all sources.  Takes O((experts + ranks) log (experts + ranks)). */
static int decide(struct llep *self, const int32_t owner[], struct mp_error *error) {
    int64_t total = mp_owned_list(&self->owned, owner, self->total, NULL);

    mp_pieces_clear(&self->pieces);
    self->active = is_skewed(self, total);
    if (!self->active)
        return MP_OK;
    self->cap = (int64_t)ceil(self->options.alpha * (double)total / self->ranks);
    memset(self->load, 0, (size_t)self->ranks * sizeof *self->load);
    memset(self->foreign, 0, (size_t)self->ranks * sizeof *self->foreign);
    queue_helpers(self);
    mp_load_hottest(self->total, self->experts, self->experts, self->order);
    for (int index = 0; index < self->experts; index++) {
        int expert = self->order[index];
        MP_TRY(place(self, expert, owner[expert], error));
    }
    return MP_OK;
}

static int llep_copies_limit(const void *opaque) {
    const struct llep *self = opaque;
    return self->copies;
}

static int llep_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                           struct mp_error *error) {
    struct llep *self = opaque;

    mp_load_expert_totals(load, self->total);
    MP_TRY(decide(self, plan->during.owner, error));
    if (!self->active)
        return mp_plan_dispatch_to_owner(plan, load, error);
    return mp_plan_dispatch_pieces(plan, load, &self->pieces, MP_CUT_IN_ORDER, error);
}

const struct mp_system mp_system_llep = {
    .abi = MP_SYSTEM_ABI,
    .name = "llep",
    .title = "LLEP: least-loaded spilling of experts that are too hot",
    .source = "LLEP, arXiv 2601.17111; SalesforceAIResearch/LeastLoadedEP",
    .models =
        "Modelled: plain expert parallelism while loads are even; otherwise routes beyond a rank's "
        "cap go to the least loaded ranks, decided on the actual loads after the gate, with "
        "parameters copied there and gradients sent home, pieces no smaller than the smallest "
        "GEMM; exact and dropless. Copies are exposed: experts wait for them. Gaps in what is "
        "known of the source are filled as baselines/llep/llep.c says. Experts need not divide "
        "ranks, and foreign experts per rank can be limited; both are our own. Not modelled: that "
        "the released planner is Python on the host.",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct llep_options),
    .size = sizeof(struct llep),
    .create = llep_create,
    .copies_limit = llep_copies_limit,
    .after_gate = llep_after_gate,
};
