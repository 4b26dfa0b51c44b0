/* Changes of homes: what moves is what is new, and every broken change is refused with its reason.
 */
#include "tests/reference/plan/plan_support.h"

#include "reference/plan/rehome.h"

static uint64_t random_state;

enum { MOST_LAYERS = 3 };

/* Homes before and after. */
struct pair {
    int layers, ranks, experts;
    struct mp_topology topology;
    struct mp_placement home[MOST_LAYERS], next[MOST_LAYERS];
    struct mp_rehome change;
};

static void random_pair(bool company, struct pair *pair) {
    *pair = (struct pair){.layers = test_random_int(&random_state, 1, MOST_LAYERS),
                          .topology = random_topology(&random_state, 90),
                          .experts = test_random_int(&random_state, 1, 20)};
    pair->ranks = pair->topology.ranks;
    for (int layer = 0; layer < pair->layers; layer++) {
        struct mp_placement *home = &pair->home[layer], *next = &pair->next[layer];
        *home = placement_of(pair->ranks, pair->experts);
        *next = placement_of(pair->ranks, pair->experts);
        random_homes(&random_state, company, home);
        random_homes(&random_state, company, next);
    }
    pair->change = (struct mp_rehome){.next = pair->next, .changed = true};
}

/* Expert 0 from the holder in the node; expert 1 from number 3 mod 2 of two in another. */
TEST(newcomers_receive_from_the_nearest) {
    static const int32_t holders[2][2] = {{0, 3}, {0, 1}},
                         expected[3][3] = {{0, 0, 1}, {0, 3, 2}, {1, 1, 3}};
    const struct mp_topology topology = {4, 2};
    struct mp_transfers list = {0};
    struct mp_placement home = placement_of(4, 2);
    struct mp_placement next = placement_of(4, 2);
    mp_placement_set_owners(&home, (const int32_t[]){0, 0});
    for (int expert = 0; expert < 2; expert++)
        mp_placement_add(&home, expert, holders[expert][1]);
    mp_placement_copy(&next, &home);
    mp_placement_add(&next, 0, 1);
    mp_placement_add(&next, 0, 2);
    mp_placement_add(&next, 1, 3);
    assert_works(mp_rehome_transfers(&home, &next, 1, &topology, 48, &list, &error));
    assert_int_equal(list.count, 3);
    for (int i = 0; i < 3; i++) {
        const struct mp_transfer *move = &list.item[i];
        assert_true(move->expert == expected[i][0] && move->from == expected[i][1] &&
                    move->to == expected[i][2]);
        assert_true(move->layer == 0 && move->bytes == 48 && move->stage == MP_STAGE_AFTER_STEP);
    }
    mp_transfers_destroy(&list);
}

/* The most experts that a rank keeps afterwards, over all layers or of one. */
static int largest_keep(const struct pair *pair, bool sliced) {
    int largest = 0;
    for (int rank = 0; rank < pair->ranks; rank++) {
        int all = 0;
        for (int layer = 0; layer < pair->layers; layer++) {
            int of_layer = 0;
            for (int expert = 0; expert < pair->experts; expert++)
                of_layer += mp_placement_holds(&pair->next[layer], expert, rank);
            all = sliced ? of_layer : all + of_layer;
            largest = all > largest ? all : largest;
        }
    }
    return largest;
}

static int check(const struct pair *pair, enum mp_optimizer_split optimizer, int limit,
                 struct mp_error *error) {
    *error = (struct mp_error){0};
    return mp_rehome_check(pair->home, &pair->change, pair->layers, optimizer, limit, error);
}

TEST(random_changes_fit_and_only_just) {
    for (int round = 0; round < 200; round++) {
        enum mp_optimizer_split optimizer =
            (enum mp_optimizer_split)(round % MP_OPTIMIZER_REPLICA_SLICES);
        struct pair pair;
        random_pair(optimizer != MP_OPTIMIZER_OWNER, &pair);
        int limit = largest_keep(&pair, mp_optimizer_sliced(optimizer));
        assert_works(check(&pair, optimizer, limit, &error));
        assert_fails(check(&pair, optimizer, limit - 1, &error), MP_EPLAN, "and has room for");
    }
}

/* Slices of replicas stay with those that they were made for. */
TEST(replicas_with_slices_stay) {
    for (int round = 0; round < 40; round++) {
        enum mp_optimizer_split optimizer =
            round % 2 ? MP_OPTIMIZER_REPLICA_SLICES : MP_OPTIMIZER_REPLICA_SLICES_OF_SUM;
        struct pair pair;
        random_pair(true, &pair);
        bool changes = false;
        for (int layer = 0; layer < pair.layers; layer++)
            changes |= !mp_placement_equal(&pair.home[layer], &pair.next[layer]);
        assert_fails(check(&pair, optimizer, 1000, &error), changes ? MP_EPLAN : MP_OK,
                     changes ? "slices stay with the holders" : "");
        for (int layer = 0; layer < pair.layers; layer++)
            mp_placement_copy(&pair.next[layer], &pair.home[layer]);
        assert_works(check(&pair, optimizer, 1000, &error));
    }
}

/* What moves in the background is here beside what it takes the place of: what is held before or
 * after; and it has to be tied replicas with their state. */
TEST(asynchronous_moves_need_room_for_both) {
    for (int round = 0; round < 100; round++) {
        struct pair pair;
        random_pair(true, &pair);
        pair.change.asynchronous = true;
        for (int layer = 0; layer < pair.layers; layer++) { /* before moves to after */
            size_t words = (size_t)pair.experts * (size_t)pair.next[layer].words;
            for (size_t word = 0; word < words; word++)
                pair.next[layer].holder[word] |= pair.home[layer].holder[word];
        }
        int limit = largest_keep(&pair, false);
        for (int layer = 0; layer < pair.layers; layer++)
            for (int expert = 0; expert < pair.experts; expert++)
                for (int rank = 0; rank < pair.ranks; rank++)
                    if (rank != pair.next[layer].owner[expert] &&
                        test_random_int(&random_state, 0, 1) &&
                        mp_placement_holds(&pair.home[layer], expert, rank))
                        mp_placement_remove(&pair.next[layer], expert, rank);
        assert_works(check(&pair, MP_OPTIMIZER_REPLICATED, limit, &error));
        assert_fails(check(&pair, MP_OPTIMIZER_REPLICATED, limit - 1, &error), MP_EPLAN,
                     "and has room for");
        assert_fails(check(&pair, MP_OPTIMIZER_SLICES, 1000, &error), MP_EPLAN,
                     "that needs tied replicas");
        pair.change.leave_state = true;
        assert_fails(check(&pair, MP_OPTIMIZER_REPLICATED, 1000, &error), MP_EPLAN,
                     "whose state is left behind");
    }
}

/* State is left behind only where as many experts arrive as leave: owners exchanged. */
TEST(state_left_behind_needs_an_exchange) {
    int refused = 0;
    for (int round = 0; round < 100; round++) {
        struct pair pair;
        random_pair(false, &pair);
        for (int layer = 0; layer < pair.layers; layer++) {
            AUTO(allocated) int32_t *owner = malloc((size_t)pair.experts * sizeof *owner);
            memcpy(owner, pair.home[layer].owner, (size_t)pair.experts * sizeof *owner);
            test_shuffle(&random_state, owner, (size_t)pair.experts, sizeof *owner);
            mp_placement_set_owners(&pair.next[layer], owner);
        }
        pair.change.leave_state = true;
        assert_works(check(&pair, MP_OPTIMIZER_OWNER, 1000, &error));
        int layer = test_random_int(&random_state, 0, pair.layers - 1);
        int from = pair.next[layer].owner[0], to = (from + 1) % pair.ranks;
        mp_placement_remove(&pair.next[layer], 0, from);
        mp_placement_add(&pair.next[layer], 0, to);
        pair.next[layer].owner[0] = to;
        if (to != from) {
            assert_fails(check(&pair, MP_OPTIMIZER_OWNER, 1000, &error), MP_EPLAN,
                         "optimizer state is left behind, and rank");
            pair.change.leave_state = false;
            assert_works(check(&pair, MP_OPTIMIZER_OWNER, 1000, &error));
            refused++;
        }
    }
    assert_true(refused > 0);
}

/* Homes that are other ones and not said to be, whatever differs of which layer. */
TEST(a_change_that_is_not_said_is_refused) {
    for (int done = 0; done < 60;) {
        struct pair pair;
        random_pair(true, &pair);
        for (int layer = 0; layer < pair.layers; layer++)
            mp_placement_copy(&pair.next[layer], &pair.home[layer]);
        pair.change.changed = false;
        assert_works(check(&pair, MP_OPTIMIZER_REPLICATED, 1000, &error));
        int layer = test_random_int(&random_state, 0, pair.layers - 1);
        int expert = test_random_int(&random_state, 0, pair.experts - 1);
        struct mp_placement *next = &pair.next[layer];
        int rank = (next->owner[expert] + 1) % pair.ranks;
        if (pair.ranks > 1) {
            if (done % 2 && mp_placement_holds(next, expert, rank))
                next->owner[expert] = rank;
            else if (mp_placement_holds(next, expert, rank))
                mp_placement_remove(next, expert, rank);
            else
                mp_placement_add(next, expert, rank);
            assert_fails(check(&pair, MP_OPTIMIZER_REPLICATED, 1000, &error), MP_EPLAN,
                         formatted("after the step layer %d has other homes", layer));
            pair.change.changed = true;
            assert_works(check(&pair, MP_OPTIMIZER_REPLICATED, 1000, &error));
            done++;
        }
    }
}

/* --- One broken thing each: expert `expert` of the last layer, and what the sentence must say ---
 */

static void owner_too_low(struct mp_placement *next, int expert) {
    next->owner[expert] = -1;
}
static void owner_too_high(struct mp_placement *next, int expert) {
    next->owner[expert] = next->ranks;
}
static void owner_without_expert(struct mp_placement *next, int expert) {
    mp_placement_remove(next, expert, next->owner[expert]);
}
static void holder_beyond(struct mp_placement *next, int expert) {
    mp_placement_add(next, expert, 64 * next->words - 1);
}
static void holder_just_beyond(struct mp_placement *next, int expert) {
    mp_placement_add(next, expert, next->ranks);
}
static void company(struct mp_placement *next, int expert) {
    mp_placement_add(next, expert, (next->owner[expert] + 1) % next->ranks);
}

static const struct broken_case {
    void (*spoil)(struct mp_placement *next, int expert);
    const char *sentence;
} BROKEN[] = {
    {owner_too_low, "is owned by rank -1 of"},
    {owner_too_high, "is owned by rank"},
    {owner_without_expert, "which does not hold it"},
    {holder_beyond, "is held by a rank beyond the last of"},
    {holder_just_beyond, "is held by a rank beyond the last of"},
    {company, "is kept by 2 ranks, and its optimizer by its owner alone"},
};

TEST_ROWS(broken_changes_are_refused, BROKEN, c) {
    for (int done = 0; done < 20;) {
        struct pair pair;
        random_pair(false, &pair);
        int expert = test_random_int(&random_state, 0, pair.experts - 1);
        if (pair.ranks % 64 == 0 || pair.ranks == 1)
            continue;
        c->spoil(&pair.next[pair.layers - 1], expert);
        assert_fails(check(&pair, MP_OPTIMIZER_OWNER, 1000, &error), MP_EPLAN, c->sentence,
                     formatted("layer %d, expert %d ", pair.layers - 1, expert));
        done++;
    }
}

TEST_SEED(random_state);
