/* Sums over the last iterations, by counts and by totals, and over a restart. */
#include "reference/plan/recent.h"
#include "tests/reference/base/memory.h"
#include "tests/reference/plan/plan_support.h"

enum { LAYERS = 2, RANKS = 3, EXPERTS = 4, ITERATIONS = 12, COUNTS = LAYERS * RANKS * EXPERTS };

struct history {
    struct mp_load load[ITERATIONS][LAYERS];
};

static void create_history(uint64_t *random, struct history *history) {
    for (int iteration = 0; iteration < ITERATIONS; iteration++)
        for (int layer = 0; layer < LAYERS; layer++) {
            struct mp_load *load = &history->load[iteration][layer];
            assert_works(mp_load_create(RANKS, EXPERTS, load, &error));
            random_load(random, load);
        }
}

TEST_END(history, struct history, {
    for (int iteration = 0; iteration < ITERATIONS; iteration++)
        for (int layer = 0; layer < LAYERS; layer++)
            mp_load_destroy(&it->load[iteration][layer]);
})

/* The last `window` of the iterations before `end`, summed by hand. */
static void assert_sums(const struct mp_recent *recent, const struct history *history, int end,
                        int window, bool totals) {
    int first = end > window ? end - window : 0;
    assert_int_equal(recent->count, end - first);
    for (int layer = 0; layer < LAYERS; layer++)
        for (int expert = 0; expert < EXPERTS; expert++) {
            int64_t total = 0;
            for (int source = 0; source < RANKS; source++) {
                int64_t sum = 0;
                for (int iteration = first; iteration < end; iteration++)
                    sum += mp_load_at(&history->load[iteration][layer], source, expert);
                if (!totals)
                    assert_int_equal(recent->sum[(layer * RANKS + source) * EXPERTS + expert], sum);
                total += sum;
            }
            if (totals)
                assert_int_equal(recent->sum[layer * EXPERTS + expert], total);
        }
}

TEST_RANDOM(sums_are_those_of_the_window) {
    AUTO(history) struct history history;
    create_history(random, &history);
    for (int window = 1; window <= ITERATIONS + 1; window++) {
        struct mp_recent counts, totals;
        mp_recent_create(&memory, COUNTS, window, &counts);
        mp_recent_create(&memory, LAYERS * EXPERTS, window, &totals);
        for (int iteration = 0; iteration < ITERATIONS; iteration++) {
            mp_recent_push_counts(&counts, history.load[iteration], LAYERS);
            mp_recent_push_totals(&totals, history.load[iteration], LAYERS);
            assert_sums(&counts, &history, iteration + 1, window, false);
            assert_sums(&totals, &history, iteration + 1, window, true);
        }
    }
}

/* Saved after `before` iterations, restored with another window, and pushed on. */
TEST_RANDOM(a_restored_window_goes_on) {
    for (int round = 0; round < 100; round++) {
        int before = test_random_int(random, 0, ITERATIONS - 1);
        int window = test_random_int(random, 1, 6), other = test_random_int(random, 1, 6);
        AUTO(history) struct history history;
        struct mp_recent recent, restored;
        char saved[4096];
        create_history(random, &history);
        mp_recent_create(&memory, COUNTS, window, &recent);
        mp_recent_create(&memory, COUNTS, other, &restored);
        for (int iteration = 0; iteration < before; iteration++)
            mp_recent_push_counts(&recent, history.load[iteration], LAYERS);
        mp_recent_push_counts(&restored, history.load[ITERATIONS - 1], LAYERS); /* forgotten */
        size_t size = mp_recent_save(&recent, saved, sizeof saved);
        assert_true(size <= sizeof saved);
        assert_works(mp_recent_load(&restored, saved, size, &error));
        assert_sums(&restored, &history, before, window < other ? window : other, false);
        if (other <= window)
            for (int iteration = before; iteration < ITERATIONS; iteration++) {
                mp_recent_push_counts(&restored, history.load[iteration], LAYERS);
                assert_sums(&restored, &history, iteration + 1, other, false);
            }
    }
}

TEST_RANDOM(foreign_bytes_are_refused) {
    AUTO(history) struct history history;
    struct mp_recent recent, other;
    char saved[4096], wrong[4096], after[4096];
    create_history(random, &history);
    mp_recent_create(&memory, COUNTS, 3, &recent);
    mp_recent_push_counts(&recent, history.load[0], LAYERS);
    size_t size = mp_recent_save(&recent, saved, sizeof saved);
    memset(wrong, 0x55, sizeof wrong);
    assert_int_equal(mp_recent_save(&recent, wrong, size - 1), size);
    assert_int_equal(wrong[0], 0x55); /* nothing was written */
    for (size_t at = 0; at < 24; at++) {
        memcpy(wrong, saved, size);
        wrong[at] ^= 0x40;
        assert_int_equal(mp_recent_load(&recent, wrong, size, NULL), MP_EFORMAT);
    }
    for (size_t cut = 0; cut < size; cut++)
        assert_int_equal(mp_recent_load(&recent, saved, cut, NULL), MP_EFORMAT);
    for (int high = 0; high < 2; high++) { /* more routes than there can be, or fewer than none */
        memcpy(wrong, saved, size);
        wrong[size - (high ? 2 : 1)] = high ? 0x05 : (char)0x80;
        assert_int_equal(mp_recent_load(&recent, wrong, size, NULL), MP_EFORMAT);
    }
    assert_int_equal(mp_recent_save(&recent, after, sizeof after), size);
    assert_memory_equal(after, saved, size);
    mp_recent_create(&memory, COUNTS + 1, 3, &other);
    assert_int_equal(mp_recent_load(&other, saved, size, NULL), MP_EFORMAT);
}
