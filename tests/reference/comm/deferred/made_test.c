/* Exchanges whose second round has rows that are made of the first one's, several at a time. */
#include "tests/reference/comm/deferred/deferred_case.h"

enum { CARGOES = MP_EXCHANGE_CARGOES };
static const size_t cargo_bytes[CARGOES] = {48, 12};

/* Every rank needs all tokens of all: who passes some on makes a row of each for every rank of its
 * node, and on the way back takes those of the first one. */
struct made {
    struct mp_exchange_path path;
    struct mirror here[CARGOES], there[CARGOES], transit[CARGOES][2];
    struct mp_exchange_cargo cargo[CARGOES];
    struct mp_exchange_maker maker;
    struct mp_request *request;
    bool back;
    int calls, passed, own; /* rows that this rank passes on; ranks of its node */
};

static int make_some(void *context, mp_stream stream, struct mp_error *e) {
    struct made *made = context;
    (void)e;
    made->calls++;
    for (int i = 0; i < CARGOES; i++) {
        size_t bytes = (size_t)made->passed * cargo_bytes[i];
        for (int r = 0; r < (made->back ? 1 : made->own); r++)
            device->operations->copy(device, stream, made->transit[i][1].device + (size_t)r * bytes,
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

static void create_made(const struct mp_topology *topology, bool reads, struct made *made) {
    const struct mp_exchange *exchange = mp_exchange_of(MP_EXCHANGE_DEDUPLICATED);
    int ranks = comm->ranks, counts = mp_exchange_counts(topology), all = 0;
    int node = mp_topology_node(topology, comm->rank);
    uint32_t distinct[CASE_RANKS * 2 * CASE_RANKS];
    *made = (struct made){.maker = {make_some, made, reads}};
    for (int r = 0; r < ranks; all += tokens_of(r++))
        for (int i = 0; i < counts; i++)
            distinct[r * counts + i] = (uint32_t)tokens_of(r);
    assert_ok(mp_exchange_path_create(exchange, topology, comm->rank, &made->path, &error));
    mp_exchange_path_distinct(exchange, topology, comm->rank, distinct, counts, &made->path);
    made->own = mp_topology_node_end(topology, node) - mp_topology_node_begin(topology, node);
    for (int r = 0; r < ranks; r++)
        made->passed += made->path.round[0].receive_rows[r];
    for (int i = 0; i < CARGOES; i++) {
        size_t row = cargo_bytes[i], room = (size_t)made->path.transit_rows * row, at = 0;
        size_t own = (size_t)tokens_of(comm->rank) * row;
        made->here[i] = mirror_create(own * (size_t)mp_topology_nodes(topology));
        made->there[i] = mirror_create((size_t)all * row);
        for (int way = 0; way < 2; way++)
            made->transit[i][way] = mirror_create(room);
        for (int n = 0; n < mp_topology_nodes(topology); n++)
            at += fill_tokens(made->here[i].host + at, comm->rank, row);
        made->cargo[i] =
            (struct mp_exchange_cargo){row,
                                       made->here[i].device,
                                       made->there[i].device,
                                       {made->transit[i][0].device, made->transit[i][1].device}};
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
        made->cargo[i].here = back ? made->there[i].device : made->here[i].device;
        made->cargo[i].there = back ? made->here[i].device : made->there[i].device;
    }
    assert_ok(mp_exchange_made_start(comm, &made->path, back, made->cargo, CARGOES, &made->maker,
                                     stream, made->request, &error));
}

static void finish_made(struct made *made, mp_stream stream) {
    assert_ok(mp_request_wait(made->request, &error));
    assert_int_equal(made->calls, 1);
    for (int i = 0; i < CARGOES; i++)
        mirror_pull(made->back ? &made->here[i] : &made->there[i], stream);
    settle(stream);
}

/* By the ranks that passed them on, of each by source; or one's own again from every node. */
static void check_made(const struct mp_topology *topology, const struct made *made) {
    const struct mp_exchange *exchange = mp_exchange_of(MP_EXCHANGE_DEDUPLICATED);
    char expected[CASE_RANKS * (5 + CASE_RANKS) * 48];
    for (int i = 0; i < CARGOES; i++) {
        const struct mirror *got = made->back ? &made->here[i] : &made->there[i];
        size_t at = 0;
        for (int n = 0; made->back && n < mp_topology_nodes(topology); n++)
            at += fill_tokens(expected + at, comm->rank, cargo_bytes[i]);
        for (int relay = 0; !made->back && relay < comm->ranks; relay++)
            for (int s = 0; s < comm->ranks; s++)
                if (mp_exchange_stop(exchange, topology, s, comm->rank, 0) == relay)
                    at += fill_tokens(expected + at, s, cargo_bytes[i]);
        assert_int_equal(at, got->bytes);
        assert_memory_equal(got->host, expected, at);
    }
}

/* Two at a time.  Where operations are queued, rows that the host has to see first are made when
 * the next operation starts, or with the wait: nobody stands still at the start. */
static void rows_are_made_between_rounds(void **state) {
    (void)state;
    bool queued = comm->ranks > 1 && strncmp(transport_name, "mpi", 3) != 0;
    for (int size = 1; size <= comm->ranks; size++) {
        const struct mp_topology topology = {comm->ranks, size};
        for (int reads = 0; reads < 2; reads++) {
            struct made made[2];
            mp_stream stream = test_random_int(&shared, 0, 1) ? own_stream : NULL;
            for (int i = 0; i < 2; i++)
                create_made(&topology, reads, &made[i]);
            for (int back = 0; back < 2; back++) {
                for (int i = 0; i < 2; i++)
                    start_made(&made[i], back, stream);
                if (queued)
                    assert_int_equal(made[0].calls + 2 * made[1].calls, reads ? 1 : 3);
                for (int i = 0; i < 2; i++) {
                    finish_made(&made[i], stream);
                    check_made(&topology, &made[i]);
                }
            }
            for (int i = 0; i < 2; i++)
                destroy_made(&made[i]);
        }
    }
}

int main(int arguments, char **argument) {
    const struct CMUnitTest made[] = {cmocka_unit_test(rows_are_made_between_rounds)};
    return RUN_DEFERRED_TESTS(arguments, argument, made);
}
