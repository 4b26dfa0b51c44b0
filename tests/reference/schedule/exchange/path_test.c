/* Exchanges, all ranks in one process: what a path says is done with rows that know where they are
 * from and where they go. */
#include "reference/schedule/exchange/exchange.h"
#include "tests/support.h"

TEST_END(path, struct mp_exchange_path, mp_exchange_path_destroy(it))

enum { MOST_RANKS = 12, MOST_ROWS = 1400, PLACES = MP_ROWS_PLACES };

/* Row `number` of the block from one rank to another. */
struct row {
    int from, to, number;
};

/* An exchange between so many ranks. */
struct world {
    const struct mp_exchange *exchange;
    struct mp_topology topology;
    int rows[MOST_RANKS][MOST_RANKS];
    struct mp_exchange_path path[MOST_RANKS];
    struct mp_exchange_walk walk[MOST_RANKS];
    struct row memory[MOST_RANKS][PLACES][MOST_ROWS];
    int64_t messages[MOST_RANKS][MOST_RANKS]; /* rows */
};
static struct world world;

static struct mp_error error;

static void must(int code) {
    if (code)
        fail_msg("%s", error.text);
}

static void create(const struct mp_exchange *exchange, struct mp_topology topology) {
    world.exchange = exchange;
    world.topology = topology;
    for (int r = 0; r < topology.ranks; r++)
        must(mp_exchange_path_create(exchange, &topology, r, &world.path[r], &error));
}

static void destroy(void) {
    for (int r = 0; r < world.topology.ranks; r++)
        mp_exchange_path_destroy(&world.path[r]);
}

static void build(void) {
    int rows[MOST_RANKS * MOST_RANKS], ranks = world.topology.ranks;
    for (int i = 0; i < ranks * ranks; i++)
        rows[i] = world.rows[i / ranks][i % ranks];
    for (int r = 0; r < ranks; r++)
        must(mp_exchange_path_build(world.exchange, &world.topology, r, rows, &world.path[r],
                                    &error));
}

/* A rank's rows by destination, or those for it by source. */
static int list_rows(int rank, bool arrived, struct row list[]) {
    int count = 0;
    for (int other = 0; other < world.topology.ranks; other++) {
        int from = arrived ? other : rank, to = arrived ? rank : other;
        for (int n = 0; n < world.rows[from][to]; n++)
            list[count++] = (struct row){from, to, n};
    }
    assert_true(count <= MOST_ROWS);
    return count;
}

static void reorder(int rank) {
    const struct mp_exchange_walk *walk = &world.walk[rank];
    const struct row *from = world.memory[rank][walk->from];
    struct row *to = world.memory[rank][walk->to];
    for (int b = 0; b < walk->round->blocks; b++) {
        const struct mp_exchange_block *block = &walk->round->block[b];
        memcpy(to + (walk->back ? block->from : block->to),
               from + (walk->back ? block->to : block->from), (size_t)block->rows * sizeof *to);
    }
}

static int begin(const int rows[], int rank) {
    int sum = 0;
    for (int r = 0; r < rank; r++)
        sum += rows[r];
    return sum;
}

/* All ranks' messages of a round, and what stays. */
static void travel(void) {
    int ranks = world.topology.ranks;
    for (int a = 0; a < ranks; a++) {
        for (int b = 0; b < ranks; b++) {
            const struct mp_exchange_walk *sends = &world.walk[a], *receives = &world.walk[b];
            const int *out = sends->back ? sends->round->receive_rows : sends->round->send_rows;
            const int *in =
                receives->back ? receives->round->send_rows : receives->round->receive_rows;
            assert_int_equal(out[b], in[a]);
            world.messages[a][b] += out[b];
            memcpy(world.memory[b][receives->to] + begin(in, a),
                   world.memory[a][sends->from] + begin(out, b),
                   (size_t)out[b] * sizeof(struct row));
        }
    }
}

/* To the next round in which rows travel, or the end. */
static bool advance(int rank) {
    struct mp_exchange_walk *walk = &world.walk[rank];
    while (walk->to != MP_ROWS_THERE && mp_exchange_walk_next(walk)) {
        if (walk->travels)
            return true;
        reorder(rank);
    }
    return false;
}

/* Rows end where they have to be, in order of their sources, and back again. */
static void carry(bool back) {
    static struct row expected[MOST_ROWS];
    int ranks = world.topology.ranks;
    memset(world.memory, 0xA5, sizeof world.memory);
    memset(world.messages, 0, sizeof world.messages);
    for (int r = 0; r < ranks; r++) {
        list_rows(r, back, world.memory[r][MP_ROWS_HERE]);
        world.walk[r] = mp_exchange_walk_begin(&world.path[r], back);
    }
    for (int round = 0; round < world.exchange->rounds; round++) {
        for (int r = 0; r < ranks; r++)
            assert_true(advance(r));
        travel();
    }
    for (int r = 0; r < ranks; r++) {
        assert_false(advance(r));
        assert_int_equal(world.walk[r].to, MP_ROWS_THERE);
        int count = list_rows(r, !back, expected);
        assert_memory_equal(world.memory[r][MP_ROWS_THERE], expected,
                            (size_t)count * sizeof *expected);
    }
}

enum pattern { FULL, SPARSE, ZERO_ROW, HOT_COLUMN, ONLY_SELF, NOTHING, PATTERNS };

static void draw_rows(uint64_t *random, enum pattern pattern) {
    int ranks = world.topology.ranks, special = test_random_int(random, 0, ranks - 1);
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++) {
            int rows = test_random_int(random, 0, 9);
            bool empty = pattern == NOTHING || (pattern == SPARSE && rows % 3) ||
                         (pattern == ZERO_ROW && a == special) ||
                         (pattern == HOT_COLUMN && b != special) ||
                         (pattern == ONLY_SELF && a != b);
            world.rows[a][b] = empty ? 0 : rows;
        }
}

/* What is put in order is what the descriptor says, and what is passed on has room. */
static void check_paths(void) {
    for (int r = 0; r < world.topology.ranks; r++)
        for (int i = 0; i < world.exchange->rounds; i++) {
            const struct mp_exchange_round *round = &world.path[r].round[i];
            int64_t in = begin(round->receive_rows, world.topology.ranks);
            int64_t out = begin(round->send_rows, world.topology.ranks);
            assert_true(round->blocks == 0 || world.exchange->reorders >> i & 1);
            assert_true(in <= world.path[r].transit_rows && out <= world.path[r].transit_rows);
        }
}

TEST_RANDOM(rows_arrive_by_source_and_return) {
    int reordered[MP_EXCHANGE_KINDS][MP_EXCHANGE_ROUNDS] = {{0}};
    for (int i = 0; i < 40 * MP_EXCHANGE_KINDS; i++) {
        int kind = i % MP_EXCHANGE_KINDS, ranks = test_random_int(random, 1, MOST_RANKS);
        if (kind == MP_EXCHANGE_DEDUPLICATED) /* has rows that are copied and summed, not blocks */
            continue;
        create(mp_exchange_of((enum mp_exchange_kind)kind),
               (struct mp_topology){ranks, test_random_int(random, 1, ranks)});
        for (enum pattern pattern = FULL; pattern < PATTERNS; pattern++) {
            draw_rows(random, pattern);
            build();
            check_paths();
            carry(false);
            carry(true);
            for (int round = 0; round < world.exchange->rounds; round++)
                reordered[kind][round] += world.path[ranks - 1].round[round].blocks > 0 ||
                                          world.path[0].round[round].blocks > 0;
        }
        destroy();
    }
    for (int kind = 0; kind < MP_EXCHANGE_KINDS; kind++)
        for (int round = 0; kind != MP_EXCHANGE_DEDUPLICATED && round < MP_EXCHANGE_ROUNDS; round++)
            assert_int_equal(reordered[kind][round] > 0,
                             mp_exchange_of((enum mp_exchange_kind)kind)->reorders >> round & 1);
}

/* Chunk "from>to" at every place of a rank's memory. */
static void expect(int rank, enum mp_exchange_memory memory, const char *chunks) {
    char text[256] = "";
    for (const struct row *row = world.memory[rank][memory];
         row < world.memory[rank][memory] + (strlen(chunks) + 1) / 4; row++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d>%d", *text ? " " : "",
                 row->from, row->to);
    assert_string_equal(text, chunks);
}

/* One row from every rank to every other one. */
static void carry_chunks(enum mp_exchange_kind kind, struct mp_topology topology) {
    create(mp_exchange_of(kind), topology);
    for (int i = 0; i < topology.ranks * topology.ranks; i++)
        world.rows[i / topology.ranks][i % topology.ranks] = 1;
    build();
    for (int r = 0; r < topology.ranks; r++) {
        list_rows(r, false, world.memory[r][MP_ROWS_HERE]);
        world.walk[r] = mp_exchange_walk_begin(&world.path[r], false);
    }
}

/* All ranks come to where they send, and rank 0 has these chunks to send; then they have
 * travelled, and it has got those. */
static void expect_round(const char *sends, const char *gets) {
    for (int r = 0; r < world.topology.ranks; r++)
        assert_true(advance(r));
    expect(0, world.walk[0].from, sends);
    travel();
    expect(0, world.walk[0].to, gets);
}

/* Chunks of Tutel's and HetuMoE's code as their sources say: microsoft/tutel, 2DH all-to-all;
 * PKU-DAIR/Hetu, halltoall. */
TEST(chunks_lie_as_in_the_sources_of_exchanges) {
    carry_chunks(MP_EXCHANGE_TWO_LEVEL, (struct mp_topology){4, 2});
    expect(0, MP_ROWS_HERE, "0>0 0>1 0>2 0>3");
    expect_round("0>0 0>2 0>1 0>3", "0>0 0>2 1>0 1>2");
    expect_round("0>0 1>0 0>2 1>2", "0>0 1>0 2>0 3>0");
    destroy();
    carry_chunks(MP_EXCHANGE_TWO_LEVEL, (struct mp_topology){8, 4});
    expect_round("0>0 0>4 0>1 0>5 0>2 0>6 0>3 0>7", "0>0 0>4 1>0 1>4 2>0 2>4 3>0 3>4");
    expect_round("0>0 1>0 2>0 3>0 0>4 1>4 2>4 3>4", "0>0 1>0 2>0 3>0 4>0 5>0 6>0 7>0");
    destroy();
    carry_chunks(MP_EXCHANGE_LEADER, (struct mp_topology){4, 2});
    expect_round("0>0 0>1 0>2 0>3", "0>0 0>1 0>2 0>3 1>0 1>1 1>2 1>3");
    expect_round("0>0 1>0 0>1 1>1 0>2 1>2 0>3 1>3", "0>0 1>0 0>1 1>1 2>0 3>0 2>1 3>1");
    expect_round("0>0 1>0 2>0 3>0 0>1 1>1 2>1 3>1", "0>0 1>0 2>0 3>0");
    destroy();
}

/* What crosses the borders of nodes does so once, in one message for two nodes, or for two nodes
 * and a place in them. */
TEST_RANDOM(nodes_are_reached_once) {
    for (int i = 0; i < 40; i++) {
        int nodes = test_random_int(random, 1, 4), size = test_random_int(random, 1, 3);
        for (int kind = MP_EXCHANGE_FLAT; kind <= MP_EXCHANGE_TWO_LEVEL; kind++) {
            int64_t crossing = 0, rows = 0;
            create(mp_exchange_of((enum mp_exchange_kind)kind),
                   (struct mp_topology){nodes * size, size});
            draw_rows(random, FULL);
            build();
            carry(false);
            for (int a = 0; a < nodes * size; a++)
                for (int b = 0; b < nodes * size; b++) {
                    bool crosses = a / size != b / size;
                    crossing += crosses ? world.messages[a][b] : 0;
                    rows += crosses ? world.rows[a][b] : 0;
                    if (crosses && kind == MP_EXCHANGE_LEADER && (a % size || b % size))
                        assert_int_equal(world.messages[a][b], 0);
                    if (crosses && kind == MP_EXCHANGE_TWO_LEVEL && a % size != b % size)
                        assert_int_equal(world.messages[a][b], 0);
                }
            assert_int_equal(crossing, rows);
            destroy();
        }
    }
}

static struct mp_levels levels_of(int ranks, const int size[], int count) {
    struct mp_levels levels = mp_levels_of_ranks(ranks);
    for (int i = 0; i < count; i++)
        mp_levels_add(&levels, size[i]);
    return levels;
}

/* Two nodes of two ranks; of each rank: tokens for node 0, node 1, ranks 0 to 3. */
TEST(tokens_go_once_to_every_node_and_rank) {
    static const uint32_t distinct[4][6] = {
        {3, 2, 2, 2, 1, 2}, {1, 4, 1, 0, 4, 1}, {2, 0, 2, 1, 0, 0}, {0, 1, 0, 0, 1, 0}};
    static const int expected[2][2][4] = {{{3, 0, 2, 0}, {3, 0, 2, 0}},
                                          {{4, 3, 0, 0}, {4, 1, 0, 0}}};
    const struct mp_exchange *exchange = mp_exchange_of(MP_EXCHANGE_DEDUPLICATED);
    const struct mp_topology topology = {4, 2};
    const struct mp_levels levels = levels_of(4, (const int[]){2}, 1);
    AUTO(path) struct mp_exchange_path path;
    assert_int_equal(mp_levels_groups(&levels), 6);
    assert_int_equal(mp_exchange_path_create(exchange, &topology, 0, &path, &error), MP_OK);
    mp_exchange_path_distinct(&levels, 0, distinct[0],
                              (int)(sizeof distinct[0] / sizeof distinct[0][0]), &path);
    assert_numbers(path.rounds, 2, path.transit_rows, 7);
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(path.round[i].send_rows, expected[i][0], sizeof expected[i][0]);
        assert_memory_equal(path.round[i].receive_rows, expected[i][1], sizeof expected[i][1]);
    }
}

/* Groups in groups of up to MOST_RANKS ranks, the last of a level perhaps smaller. */
static struct mp_levels draw_levels(uint64_t *random) {
    int ranks = test_random_int(random, 2, MOST_RANKS), size[3], sorted[3], count = 0;
    for (int next = test_random_int(random, 2, 3); next <= ranks && count < 3;
         next *= test_random_int(random, 2, 3))
        size[count++] = next;
    for (int i = 0; i < count; i++)
        sorted[i] = size[count - 1 - i];
    return levels_of(ranks, sorted, count);
}

/* A token on each rank, with experts on some. */
static struct {
    struct mp_levels levels;
    uint32_t distinct[MOST_RANKS][2 * MOST_RANKS + 2]; /* [from][groups of all levels] */
    bool goes[MP_MOST_LEVELS][MOST_RANKS][MOST_RANKS][MOST_RANKS]; /* [round][from][at][next] */
} tokens;

static void send_token(int from, int to) {
    const struct mp_levels *levels = &tokens.levels;
    for (int l = 0; l < levels->count; l++) {
        int size = levels->groups[l].ranks_per_node;
        int at = mp_levels_stop(levels, from, to, l - 1),
            next = mp_levels_stop(levels, from, to, l);
        assert_int_equal(next / size, to / size); /* and it leaves no group that it has come to */
        tokens.distinct[from][levels->begin[l] + to / size] = 1;
        tokens.goes[l][from][at][next] = true;
    }
    assert_int_equal(mp_levels_stop(levels, from, to, levels->count - 1), to);
}

/* What a rank passes on, round by round, is what comes and goes there. */
static void check_tokens(int rank, const struct mp_exchange_path *path) {
    const int rounds = tokens.levels.count, ranks = tokens.levels.groups[0].ranks;
    int64_t transit = 0;
    assert_int_equal(path->rounds, rounds);
    for (int l = 0; l < rounds; l++) {
        int64_t leave = 0, come = 0;
        for (int other = 0; other < ranks; other++) {
            int out = 0, in = 0;
            for (int from = 0; from < ranks; from++) {
                out += tokens.goes[l][from][rank][other];
                in += tokens.goes[l][from][other][rank];
            }
            assert_int_equal(path->round[l].send_rows[other], out);
            assert_int_equal(path->round[l].receive_rows[other], in);
            leave += out;
            come += in;
        }
        transit = l > 0 && leave > transit ? leave : transit;
        transit = l + 1 < rounds && come > transit ? come : transit;
    }
    assert_int_equal(path->transit_rows, transit);
}

TEST_RANDOM(tokens_go_once_to_every_group_of_all_levels) {
    int deepest = 0;
    for (int i = 0; i < 60 || (deepest < MP_MOST_LEVELS && i < 6000); i++) {
        memset(&tokens, 0, sizeof tokens);
        tokens.levels = draw_levels(random);
        const int ranks = tokens.levels.groups[0].ranks;
        assert_true(mp_levels_groups(&tokens.levels) <= mp_levels_most_groups(ranks));
        deepest = tokens.levels.count > deepest ? tokens.levels.count : deepest;
        for (int pair = 0; pair < ranks * ranks; pair++)
            if (test_random_int(random, 0, 2) == 0)
                send_token(pair / ranks, pair % ranks);
        for (int rank = 0; rank < ranks; rank++) {
            AUTO(path) struct mp_exchange_path path;
            const struct mp_exchange *exchange = mp_exchange_of(MP_EXCHANGE_DEDUPLICATED);
            assert_int_equal(
                mp_exchange_path_create(exchange, &tokens.levels.groups[0], rank, &path, &error),
                MP_OK);
            mp_exchange_path_distinct(&tokens.levels, rank, tokens.distinct[0], 2 * MOST_RANKS + 2,
                                      &path);
            check_tokens(rank, &path);
        }
    }
    assert_int_equal(deepest, MP_MOST_LEVELS);
}

/* Rows stop at their rank's place in every group. */
TEST(rows_stop_at_their_place) {
    const struct mp_levels levels = levels_of(10, (const int[]){8, 4, 2}, 3);
    static const int stops[][6] = {/* from, to, stop after each round */
                                   {1, 6, 1, 5, 7, 6},
                                   {3, 4, 3, 7, 5, 4},
                                   {5, 5, 5, 5, 5, 5},
                                   {7, 8, 9, 9, 9, 8}}; /* the last group has two ranks */
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        for (int round = 0; round < levels.count; round++)
            assert_int_equal(mp_levels_stop(&levels, stops[i][0], stops[i][1], round),
                             stops[i][2 + round]);
    assert_int_equal(mp_levels_groups(&levels), 2 + 3 + 5 + 10);
}

TEST(descriptors_are_whole) {
    char choices[256] = "";
    for (int kind = 0; kind < MP_EXCHANGE_KINDS; kind++) {
        const struct mp_exchange *exchange = mp_exchange_of((enum mp_exchange_kind)kind);
        assert_string_equal(exchange->name, mp_exchange_name((enum mp_exchange_kind)kind));
        assert_true(*exchange->title && *exchange->source && *exchange->models && *exchange->use);
        assert_in_range(exchange->rounds, 1, MP_EXCHANGE_ROUNDS);
        assert_int_equal(exchange->stop != NULL, exchange->rounds > 1);
        assert_int_equal(exchange->reorders >> exchange->rounds, 0);
        /* Rows of a step that are passed on share memory with no other step's. */
        assert_true(!exchange->steps || exchange->rounds == 1);
        if (strstr(exchange->use, "exchange: ")) /* a job may ask for it */
            snprintf(choices + strlen(choices), sizeof choices - strlen(choices), "%s%s",
                     *choices ? " " : "", exchange->name);
        else
            assert_string_equal(mp_exchange_choices, choices); /* those come first */
    }
    assert_null(mp_exchange_of(MP_EXCHANGE_KINDS));
    assert_string_equal(mp_exchange_name(MP_EXCHANGE_KINDS), "no-exchange");
}

TEST(too_many_rows_are_refused) {
    struct mp_topology topology = {2, 2};
    int rows[4] = {INT32_MAX, 1, 0, 0};
    AUTO(path) struct mp_exchange_path path;
    const struct mp_exchange *exchange = mp_exchange_of(MP_EXCHANGE_FLAT);
    must(mp_exchange_path_create(exchange, &topology, 0, &path, &error));
    assert_int_equal(mp_exchange_path_build(exchange, &topology, 0, rows, &path, &error),
                     MP_ELIMIT);
    assert_string_equal(error.text, "rank 0 would pass on more than 2147483647 rows of an exchange "
                                    "that is flat");
}
