/* Who in a node computes what. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "baselines/nodewise/nodewise.h"

void mp_nodewise_node_create(struct mp_arena *memory, int most_ranks, int experts, int copies,
                             struct mp_nodewise_node *node) {
    *node = (struct mp_nodewise_node){0};
    MP_TAKE_EACH(memory, most_ranks, node->first, node->copies, node->given, node->load, node->lack,
                 node->order);
    MP_TAKE_EACH(memory, most_ranks, node->kept_first, node->kept_copies, node->kept_load);
    MP_TAKE_EACH(memory, experts + most_ranks * copies, node->share, node->kept_share);
    mp_queue_create(memory, most_ranks, &node->above);
    mp_queue_create(memory, most_ranks, &node->below);
}

void mp_nodewise_node_begin(struct mp_nodewise_node *node, int ranks) {
    node->ranks = ranks;
    node->shares = 0;
    for (int rank = 0; rank < ranks; rank++) {
        node->first[rank] = -1;
        node->copies[rank] = node->given[rank] = 0;
        node->load[rank] = 0;
    }
}

void mp_nodewise_node_add(struct mp_nodewise_node *node, int rank, int expert, int64_t routes) {
    node->share[node->shares] =
        (struct mp_nodewise_share){routes, expert, node->first[rank], false};
    node->first[rank] = node->shares++;
    node->load[rank] += routes;
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
        sum += node->load[node->order[filled++]];
    while (filled < holders && node->load[node->order[filled]] * filled < sum);
    for (int i = 0; i < filled; i++) {
        int rank = node->order[i];
        int64_t part = sum / filled + (i < sum % filled) - node->load[rank];
        if (part > 0)
            mp_nodewise_node_add(node, rank, expert, part);
    }
}

/* The largest share of a rank. */
static struct mp_nodewise_share *largest(const struct mp_nodewise_node *node, int rank) {
    struct mp_nodewise_share *found = NULL;
    for (int32_t at = node->first[rank]; at >= 0; at = node->share[at].next)
        if (!found || node->share[at].routes > found->routes ||
            (node->share[at].routes == found->routes && node->share[at].expert < found->expert))
            found = &node->share[at];
    return found;
}

static struct mp_nodewise_share *share_of(const struct mp_nodewise_node *node, int rank,
                                          int expert) {
    for (int32_t at = node->first[rank]; at >= 0; at = node->share[at].next)
        if (node->share[at].expert == expert)
            return &node->share[at];
    return NULL;
}

static void give(struct mp_nodewise_node *node, int to, int64_t routes,
                 struct mp_nodewise_share *from, struct mp_nodewise_share *there) {
    from->routes -= routes;
    if (there) {
        there->routes += routes;
        node->load[to] += routes;
    } else {
        node->copies[to]++;
        mp_nodewise_node_add(node, to, from->expert, routes);
    }
}

static void queue_ranks(struct mp_nodewise_node *node) {
    int64_t routes = 0;
    for (int rank = 0; rank < node->ranks; rank++)
        routes += node->load[rank];
    mp_load_lacks(node->load, node->ranks, routes, node->order, node->lack);
    node->above.count = node->below.count = 0;
    for (int rank = 0; rank < node->ranks; rank++)
        if (node->lack[rank] < 0)
            mp_queue_push(&node->above, -(double)node->lack[rank], rank);
        else if (node->lack[rank] > 0)
            mp_queue_push(&node->below, (double)node->lack[rank], rank);
}

void mp_nodewise_node_even(struct mp_nodewise_node *node, int64_t least, int limit) {
    queue_ranks(node);
    while (node->above.count > 0 && node->below.count > 0) {
        int from = node->above.item[0].id, to = node->below.item[0].id;
        double over = node->above.item[0].key, under = node->below.item[0].key;
        struct mp_nodewise_share *share = largest(node, from), *there;
        int64_t routes = (int64_t)(over < under ? over : under);
        if (routes < least)
            return;
        routes = share->routes < routes ? share->routes : routes;
        there = share_of(node, to, share->expert);
        if (routes < least) {
            mp_queue_pop(&node->above);
        } else if (!there && node->copies[to] >= limit) {
            mp_queue_pop(&node->below);
        } else {
            node->load[from] -= routes;
            if (!there && !share->given) { /* further copies are passed on */
                share->given = true;
                node->given[from]++;
            }
            give(node, to, routes, share, there);
            mp_queue_lessen_first(&node->above, routes);
            mp_queue_lessen_first(&node->below, routes);
        }
    }
}

/* ---- whether it pays ---- */

static void copy_state(const struct mp_nodewise_node *node, struct mp_nodewise_share *share[2],
                       int32_t *first[2], int32_t *copies[2], int64_t *load[2]) {
    size_t ranks = (size_t)node->ranks;
    memcpy(share[0], share[1], (size_t)node->shares * sizeof **share);
    memcpy(first[0], first[1], ranks * sizeof **first);
    memcpy(copies[0], copies[1], ranks * sizeof **copies);
    memcpy(load[0], load[1], ranks * sizeof **load);
}

static void keep(struct mp_nodewise_node *node) {
    copy_state(node, (struct mp_nodewise_share *[]){node->kept_share, node->share},
               (int32_t *[]){node->kept_first, node->first},
               (int32_t *[]){node->kept_copies, node->copies},
               (int64_t *[]){node->kept_load, node->load});
}

static void restore(struct mp_nodewise_node *node, int shares) {
    node->shares = shares;
    copy_state(node, (struct mp_nodewise_share *[]){node->share, node->kept_share},
               (int32_t *[]){node->first, node->kept_first},
               (int32_t *[]){node->copies, node->kept_copies},
               (int64_t *[]){node->load, node->kept_load});
}

static int64_t routes_that_pay(double seconds, double each) {
    double routes = each > 0 ? ceil(seconds / each) : 1;
    return routes > 1 ? (int64_t)fmin(routes, 1e15) : 1;
}

void mp_nodewise_node_even_out(struct mp_nodewise_node *node, const struct mp_nodewise_costs *costs,
                               bool late, int limit) {
    const double each = costs->route + costs->row_inside;
    const int64_t fullest = mp_nodewise_node_fullest(node);
    const int shares = node->shares;
    int most = 0, products = 0;
    keep(node);
    mp_nodewise_node_even(
        node, routes_that_pay(costs->product + (late ? costs->fetch_inside : 0), each), limit);
    for (int rank = 0; rank < node->ranks; rank++) {
        int got = node->copies[rank] - node->kept_copies[rank], given = node->given[rank];
        products = got > products ? got : products;
        most = got > most ? got : most;
        most = given > most ? given : most;
    }
    double saved = (double)(fullest - mp_nodewise_node_fullest(node)) * each;
    double paid =
        products * costs->product +
        mp_nodewise_exposed(most * costs->fetch_inside, late ? 0 : costs->hidden_forward) +
        mp_nodewise_exposed(most * costs->reduce_inside, costs->hidden_inside);
    if (most > 0 && saved <= paid)
        restore(node, shares);
}
