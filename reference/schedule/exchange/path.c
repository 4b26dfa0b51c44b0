/* Paths: what a rank does in an exchange, from where its descriptor says that blocks are. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "reference/schedule/exchange/exchange.h"

/* Whose path is built, and where. */
struct build {
    const struct mp_exchange *exchange;
    const struct mp_topology *topology;
    int rank;
    const int *rows; /* [ranks][ranks] */
    struct mp_exchange_path *path;
};

static int stop(const struct build *build, int from, int to, int round) {
    return mp_exchange_stop(build->exchange, build->topology, from, to, round);
}

/* Blocks that can be at a rank before some round. */
static int most_blocks(const struct build *build) {
    int most = 0, ranks = build->topology->ranks;
    for (int round = 0; round < build->exchange->rounds; round++) {
        int blocks = 0;
        for (int from = 0; from < ranks; from++)
            for (int to = 0; to < ranks; to++)
                blocks += stop(build, from, to, round - 1) == build->rank;
        most = blocks > most ? blocks : most;
    }
    return most;
}

/* Two places of each rank, then rows to and from each in every round. */
static int *places_of(const struct mp_exchange_path *path) {
    return path->memory;
}

static int *rows_of(const struct mp_exchange_path *path, int number) {
    return places_of(path) + (2 + (size_t)number) * (size_t)path->ranks;
}

int mp_exchange_path_create(const struct mp_exchange *exchange, const struct mp_topology *topology,
                            int rank, struct mp_exchange_path *path, struct mp_error *error) {
    const struct build build = {exchange, topology, rank, NULL, path};
    size_t ranks = (size_t)topology->ranks;
    size_t rounds = (size_t)(exchange->deduplicates ? MP_EXCHANGE_ROUNDS : exchange->rounds);
    *path = (struct mp_exchange_path){
        .ranks = topology->ranks, .rounds = exchange->rounds, .makes = exchange->deduplicates};
    path->block_limit = most_blocks(&build);
    size_t blocks = (size_t)path->block_limit;
    path->memory = malloc((2 + 2 * rounds) * ranks * sizeof(int) +
                          rounds * blocks * sizeof(struct mp_exchange_block));
    if (!path->memory)
        return mp_fail(error, MP_ENOMEM, "no memory for the path of rank %d among %d", rank,
                       topology->ranks);
    struct mp_exchange_block *block = (struct mp_exchange_block *)rows_of(path, 2 * (int)rounds);
    for (int i = 0; i < (int)rounds; i++)
        path->round[i] = (struct mp_exchange_round){.block = block + (size_t)i * blocks,
                                                    .send_rows = rows_of(path, 2 * i),
                                                    .receive_rows = rows_of(path, 2 * i + 1)};
    return MP_OK;
}

void mp_exchange_path_destroy(struct mp_exchange_path *path) {
    free(path->memory);
    *path = (struct mp_exchange_path){0};
}

/* Rows to and from each rank in a round. */
static int count_rows(const struct build *build, int round, struct mp_error *error) {
    int ranks = build->topology->ranks, rank = build->rank;
    int *send = rows_of(build->path, 2 * round), *receive = rows_of(build->path, 2 * round + 1);
    const int *rows = build->rows;
    int64_t sent = 0, received = 0;
    memset(send, 0, 2 * (size_t)ranks * sizeof *send);
    for (int from = 0; from < ranks; from++) {
        for (int to = 0; to < ranks; to++, rows++) {
            if (*rows == 0)
                continue;
            int before = stop(build, from, to, round - 1), after = stop(build, from, to, round);
            sent += before == rank ? *rows : 0;
            received += after == rank ? *rows : 0;
            if (sent > INT_MAX || received > INT_MAX)
                return mp_fail(error, MP_ELIMIT,
                               "rank %d would pass on more than %d rows of an exchange that is %s",
                               rank, INT_MAX, build->exchange->name);
            send[after] += before == rank ? *rows : 0;
            receive[before] += after == rank ? *rows : 0;
        }
    }
    int64_t most = sent > received ? sent : received;
    if (most > build->path->transit_rows)
        build->path->transit_rows = most;
    return MP_OK;
}

/* Where what is from or for each rank begins. */
static void add_up(const int rows[], int ranks, int begin[]) {
    for (int r = 0, sum = 0; r < ranks; sum += rows[r++])
        begin[r] = sum;
}

static void add_block(struct mp_exchange_round *round, int from, int to, int rows) {
    struct mp_exchange_block *last = round->block + round->blocks - 1;
    if (round->blocks > 0 && last->from + last->rows == from && last->to + last->rows == to)
        last->rows += rows;
    else
        round->block[round->blocks++] = (struct mp_exchange_block){from, to, rows};
}

/* From the order in which blocks have come to that in which they leave. */
static void find_blocks(const struct build *build, int number) {
    struct mp_exchange_path *path = build->path;
    struct mp_exchange_round *round = &path->round[number];
    int ranks = path->ranks, own = 0;
    int *here = places_of(path), *there = here + ranks;
    round->blocks = 0;
    if (number > 0)
        add_up(path->round[number - 1].receive_rows, ranks, here);
    add_up(round->send_rows, ranks, there);
    for (int to = 0; to < ranks; to++) {
        for (int from = 0; from < ranks; from++) {
            int rows = build->rows[(size_t)from * (size_t)ranks + (size_t)to];
            if (rows == 0 || stop(build, from, to, number - 1) != build->rank)
                continue;
            int *at = number > 0 ? &here[stop(build, from, to, number - 2)] : &own;
            int *leaves = &there[stop(build, from, to, number)];
            add_block(round, *at, *leaves, rows);
            *at += rows;
            *leaves += rows;
        }
    }
    if (round->blocks == 1) /* all rows, from place 0 to place 0 */
        round->blocks = 0;
}

int mp_exchange_path_build(const struct mp_exchange *exchange, const struct mp_topology *topology,
                           int rank, const int rows[], struct mp_exchange_path *path,
                           struct mp_error *error) {
    const struct build build = {exchange, topology, rank, rows, path};
    path->transit_rows = 0;
    for (int round = 0; round < path->rounds; round++) {
        MP_TRY(count_rows(&build, round, error));
        find_blocks(&build, round);
    }
    return MP_OK;
}

void mp_exchange_path_distinct(const struct mp_levels *levels, int rank, const uint32_t distinct[],
                               int stride, struct mp_exchange_path *path) {
    const int ranks = path->ranks;
    path->rounds = levels->count;
    path->transit_rows = 0;
    memset(rows_of(path, 0), 0, 2 * (size_t)(path->rounds * ranks) * sizeof(int));
    for (int round = 0; round < path->rounds; round++) {
        const struct mp_topology *groups = &levels->groups[round];
        const uint32_t *tokens = distinct + levels->begin[round];
        int *send = rows_of(path, 2 * round), *receive = send + ranks;
        int64_t leave = 0, come = 0;
        for (int from = 0; from < ranks; from++, tokens += stride)
            for (int group = 0; group < mp_topology_nodes(groups); group++) {
                int first = mp_topology_node_begin(groups, group);
                int before = mp_levels_stop(levels, from, first, round - 1);
                int after = mp_levels_stop(levels, from, first, round);
                send[after] += before == rank ? (int)tokens[group] : 0;
                receive[before] += after == rank ? (int)tokens[group] : 0;
            }
        for (int r = 0; r < ranks; r++) {
            leave += send[r];
            come += receive[r];
        }
        /* What leaves first, or comes last, is not in transit. */
        int64_t most = round > 0 ? leave : 0;
        most = round + 1 < path->rounds && come > most ? come : most;
        path->transit_rows = most > path->transit_rows ? most : path->transit_rows;
    }
}

/* ---- walking ---- */

struct mp_exchange_walk mp_exchange_walk_begin(const struct mp_exchange_path *path, bool back) {
    return (struct mp_exchange_walk){
        .path = path, .back = back, .next = back ? 2 * path->rounds - 1 : 0, .to = MP_ROWS_HERE};
}

/* Whether there is something to do at that place. */
static bool does(const struct mp_exchange_path *path, int thing) {
    return thing % 2 || path->round[thing / 2].blocks > 0 || (path->makes && thing > 0);
}

bool mp_exchange_walk_next(struct mp_exchange_walk *walk) {
    int things = 2 * walk->path->rounds, way = walk->back ? -1 : 1, thing = walk->next;
    while (thing >= 0 && thing < things && !does(walk->path, thing))
        thing += way;
    if (thing < 0 || thing >= things)
        return false;
    walk->next = thing + way;
    walk->round = &walk->path->round[thing / 2];
    walk->travels = thing % 2;
    walk->from = walk->to;
    /* The last thing that can be skipped is the order of the first round, on the way back. */
    bool last = walk->back ? walk->next < 0 || (walk->next == 0 && !does(walk->path, 0))
                           : walk->next == things;
    walk->to = last                               ? MP_ROWS_THERE
               : walk->from == MP_ROWS_IN_TRANSIT ? MP_ROWS_IN_TRANSIT_2
                                                  : MP_ROWS_IN_TRANSIT;
    return true;
}
