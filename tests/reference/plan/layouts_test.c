/* A planner's slots serve the homes that were made of them, and one slot per holder any others; and
 * layouts come back from a checkpoint as they were, or not at all. */
#include "reference/plan/layouts.h"
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/plan_support.h"

enum { LAYERS = 2 };
static const char MAGIC[8] = {'M', 'P', 'T', 'E', 'S', 'T', '_', '1'};

static void random_slots(uint64_t *random, struct mp_slots *slots) {
    int all = slots->ranks * slots->per_rank;
    for (int slot = 0; slot < all; slot++)
        slots->expert[slot] = test_random_int(random, -1, slots->experts - 1);
    for (int expert = 0; expert < slots->experts; expert++) /* nobody goes without */
        slots->expert[(int64_t)expert * all / slots->experts] = expert;
    mp_slots_index(slots, 4);
}

static void random_layouts(uint64_t *random, int ranks, int experts, int per_rank,
                           struct mp_layouts *layouts) {
    mp_layouts_create(&memory, LAYERS, ranks, experts, per_rank, 4, layouts);
    for (int layer = 0; layer < LAYERS; layer++)
        random_slots(random, &layouts->slots[layer]);
}

/* Homes as a system with these layouts begins with. */
static void initial_homes(const struct mp_layouts *layouts, struct mp_placement home[]) {
    int32_t owner[LAYERS * 20];
    mp_layouts_owners(layouts, owner);
    for (int layer = 0; layer < LAYERS; layer++) {
        home[layer] = placement_of(layouts->ranks, layouts->experts);
        mp_placement_set_owners(&home[layer], owner + (size_t)layer * (size_t)layouts->experts);
    }
    mp_layouts_holders(layouts, home);
}

/* Homes of before the last change still have their slots, if asked for, and no others have. */
TEST_RANDOM(earlier_slots_serve_earlier_homes) {
    int derived = 0;
    for (int round = 0; round < 60; round++) {
        struct mp_layouts layouts, after;
        struct mp_placement home[LAYERS];
        random_layouts(random, 9, 6, 3, &layouts);
        random_layouts(random, 9, 6, 3, &after);
        initial_homes(&layouts, home);
        if (round % 2)
            mp_layouts_keep_earlier(&layouts);
        int32_t before[27];
        memcpy(before, layouts.slots[1].expert, sizeof before);
        mp_layouts_change(&layouts, 1, after.slots[1].expert);
        assert_memory_equal(layouts.slots[1].expert, after.slots[1].expert, sizeof before);
        const struct mp_slots *now = mp_layouts_for_home(&layouts, 1, &home[1]);
        if (round % 2)
            assert_memory_equal(now->expert, before, sizeof before);
        else
            derived += now == &layouts.derived;
        mp_layouts_holders(&layouts, home);
        assert_ptr_equal(mp_layouts_for_home(&layouts, 0, &home[0]), &layouts.slots[0]);
    }
    assert_true(derived > 0);
}

/* Whether both have the same experts in the same slots, indexed alike. */
static bool same_slots(const struct mp_layouts *one, const struct mp_layouts *other) {
    size_t all = (size_t)one->ranks * (size_t)one->per_rank;
    bool same = true;
    for (int layer = 0; layer < LAYERS; layer++) {
        const struct mp_slots *a = &one->slots[layer], *b = &other->slots[layer];
        bool equal = memcmp(a->expert, b->expert, all * sizeof *a->expert) == 0;
        int32_t used = a->begin[one->experts];
        if (equal) {
            assert_memory_equal(a->begin, b->begin, ((size_t)one->experts + 1) * sizeof *a->begin);
            assert_memory_equal(a->rank, b->rank, (size_t)used * sizeof *a->rank);
        }
        same &= equal;
    }
    return same;
}

TEST_RANDOM(saved_layouts_come_back) {
    for (int round = 0; round < 200; round++) {
        int ranks = test_random_int(random, 1, 9), experts = test_random_int(random, 1, 20);
        int per_rank = (experts - 1) / ranks + test_random_int(random, 1, 4);
        int other_ranks = ranks + test_random_int(random, 0, 1);
        int other_per_rank = per_rank + test_random_int(random, 0, 1);
        bool fits = ranks == other_ranks && per_rank == other_per_rank;
        struct mp_layouts first, second, before;
        struct mp_saved_layouts saved;
        struct mp_recent recent;
        char bytes[8192], window[64];
        random_layouts(random, ranks, experts, per_rank, &first);
        uint64_t again = *random;
        random_layouts(random, other_ranks, experts, other_per_rank, &second);
        random_layouts(&again, other_ranks, experts, other_per_rank, &before);
        size_t size = mp_layouts_save(&first, NULL, MAGIC, bytes, sizeof bytes);
        assert_int_equal(size, 24 + LAYERS * ranks * per_rank * 4);
        mp_recent_create(&memory, (size_t)experts, 3, &recent);
        size_t more = mp_recent_save(&recent, window, sizeof window);
        assert_int_equal(mp_layouts_save(&first, &recent, MAGIC, bytes, size), size + more);
        assert_int_equal(mp_layouts_save(&first, &recent, MAGIC, bytes, sizeof bytes), size + more);
        assert_works(mp_layouts_read(&second, "test", MAGIC, bytes, size + more, &saved, &error));
        assert_true(saved.ranks == ranks && saved.per_rank == per_rank && saved.rest_bytes == more);
        assert_memory_equal(saved.rest, window, more);
        assert_true(same_slots(&second, &before));
        mp_layouts_restore(&second, &saved);
        assert_true(same_slots(&second, fits ? &first : &before));
    }
}

static void assert_unread(struct mp_layouts *layouts, const char *bytes, size_t size,
                          const char *words) {
    struct mp_saved_layouts saved;
    assert_fails(mp_layouts_read(layouts, "test", MAGIC, bytes, size, &saved, &error), MP_EFORMAT,
                 words);
}

TEST_RANDOM(foreign_bytes_are_refused) {
    struct mp_layouts layouts;
    char saved[1024], wrong[1024];
    int32_t expert = 5;
    random_layouts(random, 3, 5, 2, &layouts);
    size_t size = mp_layouts_save(&layouts, NULL, MAGIC, saved, sizeof saved);
    memset(wrong, 0x55, sizeof wrong);
    assert_int_equal(mp_layouts_save(&layouts, NULL, MAGIC, wrong, size - 1), size);
    assert_int_equal(wrong[0], 0x55); /* nothing was written */
    for (size_t cut = 0; cut < size; cut++)
        assert_unread(&layouts, saved, cut, cut < 24 ? "at least 24 bytes" : "has more than");
    for (size_t at = 0; at < 16; at++) {
        memcpy(wrong, saved, size);
        wrong[at] ^= 0x40;
        assert_unread(&layouts, wrong, size, at < 8 ? "no state of test" : "the job has 2 with 5");
    }
    for (int value = -1; value < 2; value++) { /* ranks and slots that nothing can be divided by */
        int32_t sizes[2] = {value < 1 ? value : 1 << 30, 1 << 30};
        memcpy(wrong, saved, size);
        memcpy(wrong + 16, sizes, sizeof sizes);
        assert_unread(&layouts, wrong, size, "has more than");
    }
    memcpy(wrong, saved, size);
    memcpy(wrong + size - 4, &expert, 4); /* there is none */
    assert_unread(&layouts, wrong, size, "slots of test in layer 1 are not those of 5 experts");
    memset(wrong + 24, 0, 3 * 2 * 4); /* others are missing */
    assert_unread(&layouts, wrong, size, "slots of test in layer 0 are not those of 5 experts");
}

static const struct {
    int per_rank, shards;
    double factor;
    const char *words;
} misfits[] = {
    {3, 1, 0, NULL},
    {2, 1, 0, "tested needs a slot for every expert: 2 on each of 3 ranks are too few for 7"},
    {INT32_MAX / 3 + 1, 1, 0, "are too many for 7 experts"},
    {3, 2, 0, NULL},
    {3, 2, 1, "with expert-shards 2 it takes capacity-factor 0"},
    {3, 1, 0.75, NULL}, /* 0.75 * 12 / 9 = 1 */
    {3, 1, 0.74,
     "leaves a slot less than 1 route: 2 tokens on each of 3 ranks to 2 experts "
     "each, over 9 slots"},
};

TEST_ROWS(slots_that_do_not_fit_a_job_are_refused, misfits, c) {
    const struct mp_setting setting = {
        .experts = 7, .topology = {3, 3}, .shards = c->shards, .tokens_per_rank = 2, .top_k = 2};
    struct mp_error error = {0};
    int code = mp_layouts_check("tested", &setting, c->per_rank, c->factor, &error);
    assert_int_equal(code, c->words ? MP_EINVAL : MP_OK);
    assert_true(!c->words || strstr(error.text, c->words));
}
