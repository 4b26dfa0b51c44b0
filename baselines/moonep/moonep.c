/* MoonEP: every rank computes exactly as many routes as every other, on the actual loads
 * (MoonshotAI/MoonEP; Kimi K3 report, section 5.2.1 and appendix E).
 *
 * Experts have fixed owners, E / R neighbours on every rank: its home group.  Once the gate has
 * spoken, in every layer and micro-batch, ranks whose group has more than an even share of the
 * routes give some up to ranks whose group has less.  Those get the experts' parameters for this
 * layer (after the gate: experts wait for them) and send the gradients home.  Exact: nothing is
 * dropped and no token changes its expert.
 *
 *   share     total / R; with S tokens of K routes on every rank that is S * K
 *   groups    as long as one is above its share: the one with most above gives to the one with most
 *             below as many as that lacks, and may fall below its own share by that.  So a rank
 *             is filled once, from a single group: it takes copies of at most E / R experts
 *   experts   of a group: the taker that lacks most gets from the expert with most left as many as
 *             both have, until no taker lacks any
 *   routes    an expert's routes, source after source, are cut where its ranks end, in ascending
 *             order; not by locality
 *
 * Ties go to the lower id.  The source has E a multiple of R, as many tokens on every rank, and the
 * ranks within one NVLink domain.  Ours are: other numbers of experts and ranks (the largest group
 * takes the place of E / R), a remainder of the shares, one by one to the groups with most routes,
 * nodes, and `tolerance`. */
#include "reference/plan/owned.h"
#include "reference/plan/pieces.h"
#include "reference/plan/queue.h"
#include "reference/plan/system.h"

struct moonep_options {
    double tolerance; /* how far above its share a rank may stay, over the mean share */
};

static const struct mp_option option_table[] = {
    {"tolerance", MP_OPTION_DOUBLE, offsetof(struct moonep_options, tolerance), "", "0", 0, 1e9,
     NULL,
     "how far above an even share a rank may stay, over that share: 0 has every rank compute as "
     "much as every other; more copies fewer experts (not in the source)"},
    {0},
};

/* Routes of an expert that a rank takes. */
struct taking {
    int64_t routes;
    int32_t expert, next; /* of the same rank, an index, or -1 */
};

/* What a decision for one layer is made with, and what it comes to. */
struct moonep {
    struct moonep_options options;
    int ranks, experts;
    struct mp_pieces pieces; /* who computes how many routes of which expert, ranks ascending */
    int64_t *total;          /* [experts], their routes, less those given up */
    int64_t *lack;           /* [ranks], share less load, less what was given or taken */
    int64_t *quota;          /* [ranks], routes that the rank takes */
    int32_t *order;          /* [ranks], working memory as below */
    struct mp_owned group;   /* the home groups, with their routes */
    /* Lists through ids, -1 at their ends: a group's takers, and a rank's takings. */
    int32_t *first_taker, *first_taking; /* [ranks] */
    int32_t *next_taker;                 /* [ranks] */
    struct taking *taking;               /* [experts + ranks] */
    int takings;
    struct mp_queue above, below, left, takers; /* groups, groups, experts and ranks by routes */
};

static int moonep_create(void *opaque, const struct mp_setting *setting, const void *options,
                         struct mp_error *error) {
    struct mp_arena *memory = mp_system_arena(opaque);
    const int ranks = setting->topology.ranks, experts = setting->experts;
    struct moonep *self = opaque;
    (void)error;
    self->options = *(const struct moonep_options *)options;
    self->ranks = ranks;
    self->experts = experts;
    mp_owned_create(memory, ranks, experts, &self->group);
    /* Every taking uses up an expert or fills a rank; what is left of an expert is its owner's. */
    mp_pieces_create(memory, experts, 2 * experts + ranks, &self->pieces);
    mp_queue_create(memory, ranks, &self->above);
    mp_queue_create(memory, ranks, &self->below);
    mp_queue_create(memory, experts, &self->left);
    mp_queue_create(memory, ranks, &self->takers);
    MP_TAKE(memory, self->total, experts);
    MP_TAKE_EACH(memory, ranks, self->lack, self->quota, self->order, self->first_taker,
                 self->first_taking, self->next_taker);
    MP_TAKE(memory, self->taking, experts + ranks);
    return MP_OK;
}

/* Every rank's group and its routes; nobody takes any yet.  Returns all routes. */
static int64_t list_groups(struct moonep *self, const int32_t owner[]) {
    for (int rank = 0; rank < self->ranks; rank++) {
        self->first_taker[rank] = self->first_taking[rank] = -1;
        self->quota[rank] = 0;
    }
    self->takings = 0;
    return mp_owned_list(&self->group, owner, self->total, NULL);
}

/* Which group gives how many routes to which rank, until none has more than `allowed` above its
 * share.  The shares are all routes, so that somebody lacks some as long as somebody has more. */
static void pair_groups(struct moonep *self, double allowed) {
    self->above.count = self->below.count = 0;
    for (int rank = 0; rank < self->ranks; rank++)
        if (self->lack[rank] > 0)
            mp_queue_push(&self->below, (double)self->lack[rank], rank);
        else if (self->lack[rank] < 0)
            mp_queue_push(&self->above, -(double)self->lack[rank], rank);
    while (self->above.count > 0 && self->above.item[0].key > allowed) {
        int32_t home = self->above.item[0].id, taker = mp_queue_pop(&self->below).id;
        self->quota[taker] = self->lack[taker];
        self->next_taker[taker] = self->first_taker[home];
        self->first_taker[home] = taker;
        self->lack[home] += self->quota[taker];
        mp_queue_lessen_first(&self->above, self->quota[taker]);
        if (self->lack[home] > 0)
            mp_queue_push(&self->below, (double)self->lack[home], home);
    }
}

/* Which experts of a group its takers compute.  A group has at least what it gives: more than its
 * share before it gives to the last of them, who lacks a share at most. */
static void cut_experts(struct moonep *self, int home) {
    self->takers.count = self->left.count = 0;
    for (int32_t taker = self->first_taker[home]; taker >= 0; taker = self->next_taker[taker])
        mp_queue_push(&self->takers, (double)self->quota[taker], taker);
    for (int32_t at = self->group.begin[home];
         at < self->group.begin[home + 1] && self->takers.count > 0; at++)
        mp_queue_push(&self->left, (double)self->total[self->group.expert[at]],
                      self->group.expert[at]);
    while (self->takers.count > 0) {
        struct mp_queued taker = self->takers.item[0], expert = self->left.item[0];
        int64_t routes = (int64_t)(taker.key < expert.key ? taker.key : expert.key);
        self->taking[self->takings] =
            (struct taking){routes, expert.id, self->first_taking[taker.id]};
        self->first_taking[taker.id] = self->takings++;
        self->total[expert.id] -= routes;
        mp_queue_lessen_first(&self->takers, routes);
        mp_queue_lessen_first(&self->left, routes);
    }
}

/* Pieces of ascending ranks: what a rank takes, and what is left of its own experts. */
static int add_pieces(struct moonep *self, int rank, struct mp_error *error) {

    for (int32_t at = self->first_taking[rank]; at >= 0; at = self->taking[at].next)
        MP_TRY(mp_pieces_add(&self->pieces, self->taking[at].expert, rank, self->taking[at].routes,
                             error));
    for (int32_t at = self->group.begin[rank]; at < self->group.begin[rank + 1]; at++)
        MP_TRY(mp_pieces_add(&self->pieces, self->group.expert[at], rank,
                             self->total[self->group.expert[at]], error));
    return MP_OK;
}

/* On self->total, of all sources.  Takes O((experts + ranks) log (experts + ranks)). */
static int decide(struct moonep *self, const int32_t owner[], struct mp_error *error) {
    int64_t routes = list_groups(self, owner);

    mp_load_lacks(self->group.load, self->ranks, routes, self->order, self->lack);
    pair_groups(self, self->options.tolerance * (double)routes / self->ranks);
    for (int rank = 0; rank < self->ranks; rank++)
        cut_experts(self, rank);
    mp_pieces_clear(&self->pieces);
    for (int rank = 0; rank < self->ranks; rank++)
        MP_TRY(add_pieces(self, rank, error));
    return MP_OK;
}

/* The experts of one other group, the largest. */
static int moonep_copies_limit(const void *opaque) {
    const struct moonep *self = opaque;

    return self->ranks > 1 ? (self->experts + self->ranks - 1) / self->ranks : 0;
}

static int moonep_after_gate(void *opaque, const struct mp_load *load, struct mp_plan *plan,
                             struct mp_error *error) {
    struct moonep *self = opaque;

    mp_load_expert_totals(load, self->total);
    MP_TRY(decide(self, plan->during.owner, error));
    return mp_plan_dispatch_pieces(plan, load, &self->pieces, MP_CUT_IN_ORDER, error);
}

const struct mp_system mp_system_moonep = {
    .abi = MP_SYSTEM_ABI,
    .name = "moonep",
    .title = "MoonEP: exact balance on the actual loads, with few copies",
    .source = "MoonshotAI/MoonEP; Kimi K3 report, section 5.2.1 and appendix E",
    .models =
        "Modelled: once the gate has spoken, in every layer and micro-batch, routes are given from "
        "ranks with more than an even share to ranks with less, so that every rank computes "
        "exactly as many as every other; each takes copies of at most another rank's experts, "
        "which travel after the gate and send their gradients home; what a rank computes of an "
        "expert is cut by number, not by locality; exact and dropless. Copies stay until backward, "
        "which plans and fetches nothing. Copies are exposed: the source hides them under shared "
        "experts or another micro-batch, which the model has not. The source runs within one "
        "NVLink domain, with experts a multiple of ranks; other numbers, nodes and a tolerance are "
        "our own. Not modelled: that a token travels once to a rank that computes several of its "
        "routes, and fewer slots than experts of a rank, whose weights are then read over the link "
        "(for inference).",
    .capabilities = MP_SYSTEM_REPLICATES | MP_SYSTEM_UNEVEN_EXPERTS | MP_SYSTEM_MORE_RANKS,
    .options = option_table,
    .options_size = sizeof(struct moonep_options),
    .size = sizeof(struct moonep),
    .create = moonep_create,
    .copies_limit = moonep_copies_limit,
    .after_gate = moonep_after_gate,
};
