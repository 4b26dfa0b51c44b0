/* Exchanges whose later rounds have rows that are made of those before, several at a time. */
#include "tests/reference/comm/transports/transport_case.h"

enum { CARGOES = MP_EXCHANGE_CARGOES };
static const size_t cargo_bytes[CARGOES] = {48, 12};

/* Every rank needs all tokens of all: who passes some on makes a row of each for every group of the
 * next level in its own, and on the way back takes those of the first one. */
struct made {
    struct mp_exchange_path path;
    struct mirror here[CARGOES], there[CARGOES], transit[CARGOES][2];
    struct mp_exchange_cargo cargo[CARGOES];
    struct mp_exchange_maker maker;
    struct mp_request *request;
    bool back;
    int calls;
    const struct mp_levels *levels;
};

/* Rows that come to this rank in a round, and groups of the next level in its own. */
static int rows_come(const struct made *made, int round) {
    int rows = 0;
    for (int r = 0; r < comm->ranks; r++)
        rows += made->path.round[round].receive_rows[r];
    return rows;
}
static int groups_inside(const struct mp_levels *levels, int round) {
    const struct mp_topology *groups = &levels->groups[round], *next = groups + 1;
    int group = mp_topology_node(groups, comm->rank);
    return mp_topology_node(next, mp_topology_node_end(groups, group) - 1) -
           mp_topology_node(next, mp_topology_node_begin(groups, group)) + 1;
}

static int make_some(void *context, mp_stream stream, UNUSED struct mp_error *e) {
    struct made *made = context;
    int number = made->calls++, round = made->back ? made->levels->count - 2 - number : number;
    for (int i = 0; i < CARGOES; i++) {
        size_t bytes = (size_t)rows_come(made, round) * cargo_bytes[i];
        for (int r = 0; r < (made->back ? 1 : groups_inside(made->levels, round)); r++)
            copy_bytes(stream, made->transit[i][1].device + (size_t)r * bytes,
                       made->transit[i][0].device, bytes);
    }
    return MP_OK;
}

/* Tokens of a rank, and what their rows have. */
static int tokens_of(int rank) {
    return rank % 3 == 1 ? 0 : 5 + rank;
}
static size_t fill_tokens(char *to, int rank, size_t row_bytes) {
    size_t bytes = (size_t)tokens_of(rank) * row_bytes;
    for (size_t i = 0; i < bytes; i++)
        to[i] = (char)((size_t)rank * 31 + i * 7 + i / row_bytes);
    return bytes;
}

static void create_made(const struct mp_levels *levels, bool reads, struct made *made) {
    const struct mp_exchange *exchange = mp_exchange_of(MP_EXCHANGE_DEDUPLICATED);
    const struct mp_topology *outer = &levels->groups[0];
    int ranks = comm->ranks, counts = mp_levels_groups(levels), all = 0;
    uint32_t distinct[CASE_RANKS * (2 * CASE_RANKS + 2)];
    *made = (struct made){.maker = {make_some, made, reads}, .levels = levels};
    for (int r = 0; r < ranks; all += tokens_of(r++))
        for (int i = 0; i < counts; i++)
            distinct[r * counts + i] = (uint32_t)tokens_of(r);
    assert_ok(mp_exchange_path_create(exchange, outer, comm->rank, &made->path, &error));
    mp_exchange_path_distinct(levels, comm->rank, distinct, counts, &made->path);
    for (int i = 0; i < CARGOES; i++) {
        size_t row = cargo_bytes[i], room = (size_t)made->path.transit_rows * row, at = 0;
        size_t own = (size_t)tokens_of(comm->rank) * row;
        made->here[i] = mirror_create(own * (size_t)mp_topology_nodes(outer));
        made->there[i] = mirror_create((size_t)all * row);
        for (int way = 0; way < 2; way++)
            made->transit[i][way] = mirror_create(room);
        for (int n = 0; n < mp_topology_nodes(outer); n++)
            at += fill_tokens(made->here[i].host + at, comm->rank, row);
        made->cargo[i] =
            (struct mp_exchange_cargo){row,
                                       {made->here[i].device, made->transit[i][0].device,
                                        made->transit[i][1].device, made->there[i].device}};
    }
    assert_ok(mp_request_create(comm, 0, 0, &made->request, &error));
}

static void destroy_made(struct made *made) {
    mp_request_destroy(made->request);
    for (int i = 0; i < CARGOES; i++) {
        mirror_destroy(&made->here[i]);
        mirror_destroy(&made->there[i]);
        mirror_destroy(&made->transit[i][0]);
        mirror_destroy(&made->transit[i][1]);
    }
    mp_exchange_path_destroy(&made->path);
}

static void start_made(struct made *made, bool back, mp_stream stream) {
    made->back = back;
    made->calls = 0;
    for (int i = 0; i < CARGOES; i++) {
        mirror_push(back ? &made->there[i] : &made->here[i], stream);
        made->cargo[i].memory[MP_ROWS_HERE] = back ? made->there[i].device : made->here[i].device;
        made->cargo[i].memory[MP_ROWS_THERE] = back ? made->here[i].device : made->there[i].device;
    }
    assert_ok(mp_exchange_made_start(comm, &made->path, back, made->cargo, CARGOES, &made->maker,
                                     stream, made->request, &error));
}

static void finish_made(struct made *made, mp_stream stream) {
    assert_ok(mp_request_wait(made->request, &error));
    assert_int_equal(made->calls, made->levels->count - 1);
    for (int i = 0; i < CARGOES; i++)
        mirror_pull(made->back ? &made->here[i] : &made->there[i], stream);
    settle(stream);
}

/* Sources of what has come to a rank in a round: by the ranks that passed it on, of each as it had
 * come there. */
static int list_sources(const struct mp_levels *levels, int round, int rank, int source[]) {
    int count = 0, passed[CASE_RANKS];
    source[0] = rank;
    if (round < 0)
        return 1;
    for (int before = 0; before < comm->ranks; before++)
        for (int i = 0, all = list_sources(levels, round - 1, before, passed); i < all; i++)
            if (mp_levels_stop(levels, passed[i], rank, round - 1) == before &&
                mp_levels_stop(levels, passed[i], rank, round) == rank)
                source[count++] = passed[i];
    return count;
}

/* Or one's own again from every outermost group. */
static void check_made(const struct made *made) {
    const struct mp_levels *levels = made->levels;
    int source[CASE_RANKS], sources = list_sources(levels, levels->count - 1, comm->rank, source);
    assert_int_equal(sources, comm->ranks);
    char expected[CASE_RANKS * (5 + CASE_RANKS) * 48];
    for (int i = 0; i < CARGOES; i++) {
        const struct mirror *got = made->back ? &made->here[i] : &made->there[i];
        size_t at = 0;
        for (int n = 0; made->back && n < mp_topology_nodes(&levels->groups[0]); n++)
            at += fill_tokens(expected + at, comm->rank, cargo_bytes[i]);
        for (int s = 0; !made->back && s < sources; s++)
            at += fill_tokens(expected + at, source[s], cargo_bytes[i]);
        assert_int_equal(at, got->bytes);
        assert_memory_equal(got->host, expected, at);
    }
}

/* Two at a time.  Where operations are queued, rows that the host has to see first are made when
 * the next operation starts, or with the wait: nobody stands still at the start. */
static void make_over(const struct mp_levels *levels, bool reads) {
    bool queued = comm->ranks > 1 && strncmp(transport_name, "mpi", 3) != 0;
    struct made made[2];
    mp_stream stream = test_random_int(&shared, 0, 1) ? own_stream : NULL;
    const int calls = levels->count - 1;
    for (int i = 0; i < 2; i++)
        create_made(levels, reads, &made[i]);
    for (int back = 0; back < 2; back++) {
        for (int i = 0; i < 2; i++)
            start_made(&made[i], back, stream);
        if (queued)
            assert_int_equal(made[0].calls + 2 * made[1].calls, reads ? calls : 3 * calls);
        for (int i = 0; i < 2; i++) {
            finish_made(&made[i], stream);
            check_made(&made[i]);
        }
    }
    for (int i = 0; i < 2; i++)
        destroy_made(&made[i]);
}

/* With one level of groups, and with groups in them. */
TEST(rows_are_made_between_rounds) {
    for (int size = 1; size <= comm->ranks; size++)
        for (int inner = size; inner >= 1; inner--) {
            struct mp_levels levels = mp_levels_of_ranks(comm->ranks);
            if (size % inner != 0 || (inner == 1 && size > 1))
                continue;
            mp_levels_add(&levels, size);
            if (inner < size)
                mp_levels_add(&levels, inner);
            for (int reads = 0; reads < 2; reads++)
                make_over(&levels, reads);
        }
}
