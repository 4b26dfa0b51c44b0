#include "reference/model/routing.h"

#include <stdlib.h>
#include <string.h>

int mp_routing_create(int ranks, int experts, int64_t rows_limit, struct mp_routing *routing,
                      struct mp_error *error) {
    size_t r = (size_t)ranks, e = (size_t)experts;
    *routing = (struct mp_routing){.ranks = ranks,
                                   .experts = experts,
                                   .rows_limit = rows_limit,
                                   .part_limit = ranks * experts};
    routing->send_rows = calloc(r, sizeof(int));
    routing->receive_rows = calloc(r, sizeof(int));
    routing->next_row = calloc(r, sizeof(int));
    routing->part_begin = calloc(e + 1, sizeof(int));
    routing->part_count = calloc(r * e, sizeof(int));
    routing->part_row = calloc(r * e, sizeof(int));
    routing->group_expert = calloc(e, sizeof(int));
    routing->group_rows = calloc(e, sizeof(int));
    routing->receive_index = malloc((size_t)rows_limit * sizeof *routing->receive_index);
    if (routing->send_rows && routing->receive_rows && routing->next_row && routing->part_begin &&
        routing->part_count && routing->part_row && routing->group_expert && routing->group_rows &&
        routing->receive_index)
        return MP_OK;
    mp_routing_destroy(routing);
    return mp_fail(error, MP_ENOMEM, "no memory for the routing of %lld rows",
                   (long long)rows_limit);
}

void mp_routing_destroy(struct mp_routing *routing) {
    if (!routing)
        return;
    free(routing->send_rows);
    free(routing->receive_rows);
    free(routing->next_row);
    free(routing->part_begin);
    free(routing->part_count);
    free(routing->part_row);
    free(routing->group_expert);
    free(routing->group_rows);
    free(routing->receive_index);
    *routing = (struct mp_routing){0};
}

/* Send side: how many rows go to each rank, and where each part's first row is. */
static void build_send(const struct mp_plan *plan, int rank, struct mp_routing *routing) {
    memset(routing->send_rows, 0, (size_t)routing->ranks * sizeof(int));
    int parts_seen = 0;
    for (int e = 0; e < routing->experts; e++) {
        int parts;
        const struct mp_dispatch_part *part = mp_plan_parts(plan, rank, e, &parts);
        routing->part_begin[e] = parts_seen;
        for (int p = 0; p < parts; p++)
            routing->send_rows[part[p].holder] += (int)part[p].count;
        parts_seen += parts;
    }
    routing->part_begin[routing->experts] = parts_seen;

    int row = 0;
    for (int r = 0; r < routing->ranks; r++) {
        routing->next_row[r] = row;
        row += routing->send_rows[r];
    }
    routing->send_total = row;
    for (int e = 0; e < routing->experts; e++) {
        int parts;
        const struct mp_dispatch_part *part = mp_plan_parts(plan, rank, e, &parts);
        for (int p = 0; p < parts; p++) {
            int at = routing->part_begin[e] + p;
            routing->part_count[at] = (int)part[p].count;
            routing->part_row[at] = routing->next_row[part[p].holder];
            routing->next_row[part[p].holder] += (int)part[p].count;
        }
    }
}

static int rows_from(const struct mp_plan *plan, int source, int expert, int rank) {
    int parts;
    const struct mp_dispatch_part *part = mp_plan_parts(plan, source, expert, &parts);
    for (int p = 0; p < parts; p++)
        if (part[p].holder == rank)
            return (int)part[p].count;
    return 0;
}

/* Receive side: rows from each source, groups, and the permutation between the two orders. */
static int build_receive(const struct mp_plan *plan, int rank, struct mp_routing *routing,
                         struct mp_error *error) {
    int64_t total = 0;
    for (int s = 0; s < routing->ranks; s++) {
        int rows = 0;
        for (int e = 0; e < routing->experts; e++)
            if (mp_placement_holds(&plan->during, e, rank))
                rows += rows_from(plan, s, e, rank);
        routing->receive_rows[s] = rows;
        routing->next_row[s] = (int)total;
        total += rows;
    }
    if (total > routing->rows_limit)
        return mp_fail(error, MP_ELIMIT,
                       "layer %d: rank %d would receive %lld rows, there is room for %lld",
                       plan->layer, rank, (long long)total, (long long)routing->rows_limit);
    routing->receive_total = (int)total;

    int row = 0;
    routing->groups = 0;
    routing->in_expert_order = true;
    for (int e = 0; e < routing->experts; e++) {
        if (!mp_placement_holds(&plan->during, e, rank))
            continue;
        int begin = row;
        for (int s = 0; s < routing->ranks; s++) {
            int rows = rows_from(plan, s, e, rank);
            if (rows && routing->next_row[s] != row)
                routing->in_expert_order = false;
            for (int i = 0; i < rows; i++)
                routing->receive_index[row++] = routing->next_row[s]++;
        }
        routing->group_expert[routing->groups] = e;
        routing->group_rows[routing->groups++] = row - begin;
    }
    return MP_OK;
}

int mp_routing_build(const struct mp_plan *plan, int rank, struct mp_routing *routing,
                     struct mp_error *error) {
    build_send(plan, rank, routing);
    return build_receive(plan, rank, routing, error);
}
