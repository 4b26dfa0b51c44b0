/* Who in a node computes what. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "baselines/nodewise/nodewise.h"

void mp_nodewise_node_create(struct mp_arena *memory, int most_ranks, int experts, int copies,
                             int64_t product, struct mp_nodewise_node *node) {
    *node = (struct mp_nodewise_node){.product = product};
    MP_TAKE_EACH(memory, most_ranks, node->first, node->copies, node->given, node->got, node->load,
                 node->order);
    MP_TAKE(memory, node->share, experts + most_ranks * copies);
    mp_queue_create(memory, most_ranks, &node->above);
    mp_queue_create(memory, most_ranks, &node->below);
}

void mp_nodewise_node_begin(struct mp_nodewise_node *node, int ranks) {
    node->ranks = ranks;
    node->shares = 0;
    for (int rank = 0; rank < ranks; rank++) {
        node->first[rank] = -1;
        node->copies[rank] = node->given[rank] = node->got[rank] = 0;
        node->load[rank] = 0;
    }
}

void mp_nodewise_node_add(struct mp_nodewise_node *node, int rank, int expert, int64_t routes,
                          bool fixed) {
    node->share[node->shares] =
        (struct mp_nodewise_share){routes, expert, node->first[rank], fixed, false};
    node->first[rank] = node->shares++;
    node->load[rank] += routes + node->product;
}

int64_t mp_nodewise_node_fullest(const struct mp_nodewise_node *node) {
    int64_t most = 0;
    for (int rank = 0; rank < node->ranks; rank++)
        most = node->load[rank] > most ? node->load[rank] : most;
    return most;
}

void mp_nodewise_node_spread(struct mp_nodewise_node *node, int expert, const int32_t holder[],
                             int holders, int64_t routes) {
    int64_t sum = routes;
    int filled = 0;
    for (int i = 0; i < holders; i++) { /* ascending by load, ties to the lower rank */
        int at = i;
        for (; at > 0 && node->load[node->order[at - 1]] > node->load[holder[i]]; at--)
            node->order[at] = node->order[at - 1];
        node->order[at] = holder[i];
    }
    /* The emptiest are raised to one level, as far as the routes go. */
    do
        sum += node->load[node->order[filled++]] + node->product;
    while (filled < holders && (node->load[node->order[filled]] + node->product) * filled < sum);
    for (int i = 0; i < filled; i++) {
        int rank = node->order[i];
        int64_t part = sum / filled + (i < sum % filled) - node->product - node->load[rank];
        if (part > 0)
            mp_nodewise_node_add(node, rank, expert, part, false);
    }
}

/* A rank's largest share of at most so many routes. */
static struct mp_nodewise_share *largest(const struct mp_nodewise_node *node, int rank,
                                         int64_t most) {
    struct mp_nodewise_share *found = NULL;
    for (int32_t at = node->first[rank]; at >= 0; at = node->share[at].next) {
        struct mp_nodewise_share *share = &node->share[at];
        if (share->routes > 0 && share->routes <= most && !share->fixed &&
            (!found || share->routes > found->routes ||
             (share->routes == found->routes && share->expert < found->expert)))
            found = share;
    }
    return found;
}

static struct mp_nodewise_share *share_of(const struct mp_nodewise_node *node, int rank,
                                          int expert) {
    for (int32_t at = node->first[rank]; at >= 0; at = node->share[at].next)
        if (node->share[at].expert == expert && node->share[at].routes > 0)
            return &node->share[at];
    return NULL;
}

/* The least level to which those that have room for more than a product take what is above it. */
static int64_t level_of(const struct mp_nodewise_node *node) {
    int64_t low = 0, high = mp_nodewise_node_fullest(node);
    for (int rank = 0; rank < node->ranks; rank++)
        low += node->load[rank];
    low /= node->ranks;
    while (low < high) {
        int64_t level = low + (high - low) / 2, left = 0;
        for (int rank = 0; rank < node->ranks; rank++) {
            int64_t above = node->load[rank] - level;
            left += above > 0 ? above : above + node->product < 0 ? above + node->product : 0;
        }
        if (left > 0)
            low = level + 1;
        else
            high = level;
    }
    return low;
}

static void queue_ranks(struct mp_nodewise_node *node) {
    const int64_t level = level_of(node);
    node->above.count = node->below.count = 0;
    for (int rank = 0; rank < node->ranks; rank++)
        if (node->load[rank] > level)
            mp_queue_push(&node->above, (double)(node->load[rank] - level), rank);
        else if (node->load[rank] < level)
            mp_queue_push(&node->below, (double)(level - node->load[rank]), rank);
}

/* Routes of a share for another rank. */
struct gift {
    struct mp_nodewise_share *share;
    int64_t routes, taken; /* taken: off the giver's load */
};

static struct gift gift_of(const struct mp_nodewise_node *node, struct mp_nodewise_share *share,
                           int64_t most) {
    int64_t routes = share->routes < most ? share->routes : most;
    return (struct gift){share, routes, routes + (routes == share->routes ? node->product : 0)};
}

/* The larger one of a part of the largest share and a whole one that there is room for; nothing if
 * the rank has none. */
static struct gift choose_gift(const struct mp_nodewise_node *node, int from, int64_t over,
                               int64_t under) {
    const int64_t room = under - node->product;
    struct mp_nodewise_share *any = largest(node, from, INT64_MAX);
    struct mp_nodewise_share *whole =
        largest(node, from, over < under ? over - node->product : room);
    if (!any)
        return (struct gift){0};
    struct gift gift = gift_of(node, any, over < room ? over : room);
    return whole && whole->routes + node->product > gift.routes
               ? gift_of(node, whole, whole->routes)
               : gift;
}

/* To a rank that has the expert, or takes a copy. */
static void give(struct mp_nodewise_node *node, int from, int to, const struct gift *gift,
                 struct mp_nodewise_share *there) {
    node->load[from] -= gift->taken;
    gift->share->routes -= gift->routes;
    if (there) {
        there->routes += gift->routes;
        node->load[to] += gift->routes;
        return;
    }
    if (!gift->share->given) { /* further copies are passed on */
        gift->share->given = true;
        node->given[from]++;
    }
    node->copies[to]++;
    node->got[to]++;
    mp_nodewise_node_add(node, to, gift->share->expert, gift->routes, false);
}

void mp_nodewise_node_even(struct mp_nodewise_node *node, int64_t least, int limit) {
    queue_ranks(node);
    while (node->above.count > 0 && node->below.count > 0) {
        int from = node->above.item[0].id, to = node->below.item[0].id;
        int64_t over = (int64_t)node->above.item[0].key, under = (int64_t)node->below.item[0].key;
        struct gift gift = choose_gift(node, from, over, under);
        if (!gift.share || gift.taken < least) {
            mp_queue_pop(&node->above);
            continue;
        }
        struct mp_nodewise_share *there = share_of(node, to, gift.share->expert);
        if (!there && node->copies[to] >= limit) {
            mp_queue_pop(&node->below);
        } else {
            give(node, from, to, &gift, there);
            mp_queue_lessen_first(&node->above, gift.taken);
            mp_queue_lessen_first(&node->below, gift.routes + (there ? 0 : node->product));
        }
    }
}

static int64_t routes_that_pay(double seconds, double each) {
    double routes = each > 0 ? ceil(seconds / each) : 1;
    return routes > 1 ? (int64_t)fmin(routes, 1e15) : 1;
}

bool mp_nodewise_node_even_out(struct mp_nodewise_node *node, const struct mp_nodewise_costs *costs,
                               struct mp_nodewise_hidden hidden, int limit) {
    const double each = costs->route + costs->row_inside;
    const double copy = costs->product +
                        mp_nodewise_exposed(costs->fetch_inside, hidden.parameters) +
                        mp_nodewise_exposed(costs->reduce_inside, hidden.gradients);
    const int64_t fullest = mp_nodewise_node_fullest(node);
    int most = 0;
    mp_nodewise_node_even(node, routes_that_pay(copy, each), limit);
    for (int rank = 0; rank < node->ranks; rank++) {
        most = node->got[rank] > most ? node->got[rank] : most;
        most = node->given[rank] > most ? node->given[rank] : most;
    }
    double saved = (double)(fullest - mp_nodewise_node_fullest(node)) * each;
    double paid = mp_nodewise_exposed(most * costs->fetch_inside, hidden.parameters) +
                  mp_nodewise_exposed(most * costs->reduce_inside, hidden.gradients);
    return most == 0 || saved > paid;
}
