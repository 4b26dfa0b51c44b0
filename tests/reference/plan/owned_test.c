/* Lists of ranks' experts: each expert once, with its owner, in the order that is asked for. */
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/plan_support.h"

#include "reference/plan/owned.h"

enum { MOST_RANKS = 9, MOST_EXPERTS = 24, ROUNDS = 200 };

struct experts {
    int ranks, count;
    int32_t owner[MOST_EXPERTS], order[MOST_EXPERTS];
    int64_t routes[MOST_EXPERTS];
};

static void draw(uint64_t *random, struct experts *experts) {
    experts->ranks = test_random_int(random, 1, MOST_RANKS);
    experts->count = test_random_int(random, 1, MOST_EXPERTS);
    for (int expert = 0; expert < experts->count; expert++) {
        experts->owner[expert] = test_random_int(random, 0, experts->ranks - 1);
        experts->routes[expert] = test_random_int(random, 0, 5);
    }
    mp_load_hottest(experts->routes, experts->count, experts->count, experts->order);
}

/* A rank's list is its experts as they come in the order, with the routes of all of them; the
 * hottest is the first of those with most. */
static void check_rank(const struct mp_owned *owned, const struct experts *experts, bool ordered,
                       int rank) {
    int32_t at = owned->begin[rank], hottest = -1;
    int64_t load = 0;
    for (int index = 0; index < experts->count; index++) {
        int32_t expert = ordered ? experts->order[index] : index;
        if (experts->owner[expert] != rank)
            continue;
        assert_true(at < owned->begin[rank + 1]);
        assert_int_equal(owned->expert[at++], expert);
        load += experts->routes[expert];
        if (hottest < 0 || experts->routes[expert] > experts->routes[hottest])
            hottest = expert;
    }
    assert_int_equal(at, owned->begin[rank + 1]);
    assert_int_equal(owned->load[rank], load);
    assert_int_equal(mp_owned_hottest(owned, rank, experts->routes), hottest);
}

TEST_RANDOM(every_expert_is_listed_with_its_owner) {
    for (int round = 0; round < ROUNDS; round++) {
        const bool ordered = round % 2;
        struct experts experts;
        struct mp_owned owned;
        int64_t all = 0;
        draw(random, &experts);
        for (int expert = 0; expert < experts.count; expert++)
            all += experts.routes[expert];
        mp_owned_create(&memory, experts.ranks, experts.count, &owned);
        for (int again = 0; again < 2; again++)
            assert_int_equal(mp_owned_list(&owned, experts.owner, experts.routes,
                                           ordered ? experts.order : NULL),
                             all);
        assert_int_equal(owned.begin[0], 0);
        for (int rank = 0; rank < experts.ranks; rank++)
            check_rank(&owned, &experts, ordered, rank);
    }
}
