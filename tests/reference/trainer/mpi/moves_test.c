/* New homes: whatever homes become, parameters and moments follow to everybody who keeps an expert,
 * no rank ever needs more than its spare slot, and moments stay behind only if they are to. */
#include "tests/reference/trainer/mpi/trainers.h"

enum { LAYERS = 3, EXPERTS = 8, ALL = LAYERS * EXPERTS, ROUNDS = 60 };
static uint64_t random_state; /* the same on every rank */

/* What buffer `which` of an expert holds at `at` after `round` rounds. */
static float value(int expert, int which, size_t at, int round) {
    return (float)(expert * 1000 + which * 250 + (int)(at % 199)) + (float)round / 128;
}

static float *buffer(struct mp_experts *experts, int which, int expert) {
    float *memory[] = {experts->parameter, experts->first, experts->second};
    int place = which == 0 ? experts->slot[expert] : experts->moments[expert];
    assert_in_range(place, 0, experts->slots - 1);
    return memory[which] + (size_t)place * experts->chunk;
}

static bool keeps(const struct mp_placement home[], int index, int rank) {
    return mp_placement_holds(&home[index / EXPERTS], index % EXPERTS, rank);
}

/* Owned by whoever kept it last round: the contents are told by owner, so replicas are equal. */
static void fill(struct mp_trainer *trainer, int round) {
    struct mp_experts *experts = &mp_trainer_model(trainer)->experts;
    for (int i = 0; i < ALL; i++)
        for (int w = 0; w < 3 && keeps(trainer->planner.home, i, world->rank); w++)
            for (size_t at = 0; at < experts->chunk; at++)
                buffer(experts, w, i)[at] = value(i, w, at, round);
}

static void check_buffer(struct mp_experts *experts, int which, int index, int from, int round) {
    for (size_t at = 0; at < experts->chunk; at++)
        if (buffer(experts, which, index)[at] != value(from, which, at, round))
            fail_msg("round %d, expert %d, buffer %d, at %zu: %g, expected %g", round, index, which,
                     at, (double)buffer(experts, which, index)[at],
                     (double)value(from, which, at, round));
}

static void check_slots(struct mp_trainer *trainer) {
    struct mp_experts *experts = &mp_trainer_model(trainer)->experts;
    int kept = 0, used = 0, used_moments = 0;
    for (int i = 0; i < ALL; i++) {
        kept += keeps(trainer->planner.change.next, i, world->rank);
        for (int r = 0; r < world->ranks; r++)
            assert_int_equal(keeps(trainer->planner.home, i, r),
                             keeps(trainer->planner.change.next, i, r));
        assert_int_equal(experts->slot[i] >= 0,
                         keeps(trainer->planner.change.next, i, world->rank));
        for (int j = 0; j < i; j++) { /* nothing shares memory */
            assert_true(experts->slot[i] < 0 || experts->slot[i] != experts->slot[j]);
            assert_true(experts->moments[i] < 0 || experts->moments[i] != experts->moments[j]);
        }
    }
    for (int s = 0; s < experts->slots; s++) {
        used += experts->used[s];
        used_moments += experts->used_moments[s];
    }
    assert_int_equal(experts->held, kept);
    assert_true(kept <= trainer->planner.homes_limit);
    assert_int_equal(used, kept);
    assert_int_equal(used_moments, kept);
}

static void check(struct mp_trainer *trainer, int round) {
    check_slots(trainer);
    for (int i = 0; i < ALL; i++)
        for (int w = 0; w < 3 && keeps(trainer->planner.change.next, i, world->rank); w++)
            check_buffer(&mp_trainer_model(trainer)->experts, w, i, i, round);
}

/* What products read is what has moved. */
static void check_elements(struct mp_trainer *trainer) {
    struct mp_experts *experts = &mp_trainer_model(trainer)->experts;
    for (int i = 0; i < ALL; i++)
        if (experts->slot[i] >= 0)
            assert_memory_equal(mp_experts_own_elements(experts, i / EXPERTS, i % EXPERTS),
                                buffer(experts, 0, i), experts->chunk * sizeof(float));
}

/* Makes a list of what has to move, in random order, and carries it out. */
static int rehome(struct mp_trainer *trainer, bool leave_state, struct mp_error *refusal) {
    struct mp_transfers *moves = &trainer->planner.moves;
    moves->count = 0;
    must(mp_rehome_transfers(trainer->planner.home, trainer->planner.change.next, LAYERS,
                             &trainer->setting.topology, 1, moves, &error));
    test_shuffle(&random_state, moves->item, (size_t)moves->count, sizeof *moves->item);
    trainer->planner.change.leave_state = leave_state;
    return mp_moves_start(&trainer->moves, refusal);
}

static void set_owners(struct mp_placement next[], const int32_t owner[ALL]) {
    for (int l = 0; l < LAYERS; l++)
        mp_placement_set_owners(&next[l], owner + (size_t)l * EXPERTS);
}

static void shuffle(int32_t owner[], int count) {
    test_shuffle(&random_state, owner, (size_t)count, sizeof *owner);
}

/* Every kind of change: a shuffle, everything to the next rank, two ranks exchange all. */
static void change_owners(struct mp_trainer *trainer, int round) {
    int32_t wanted[ALL];
    for (int i = 0; i < ALL; i++)
        wanted[i] = trainer->planner.home[i / EXPERTS].owner[i % EXPERTS];
    int a = test_random_int(&random_state, 0, world->ranks - 1);
    int b = test_random_int(&random_state, 0, world->ranks - 1);
    if (round % 3 == 0)
        shuffle(wanted, ALL);
    for (int i = 0; i < ALL; i++) {
        if (round % 3 == 1)
            wanted[i] = (wanted[i] + 1) % world->ranks;
        if (round % 3 == 2)
            wanted[i] = wanted[i] == a ? b : wanted[i] == b ? a : wanted[i];
    }
    set_owners(trainer->planner.change.next, wanted);
}

static void take_over(struct mp_trainer *trainer) {
    for (int l = 0; l < LAYERS; l++)
        mp_placement_copy(&trainer->planner.home[l], &trainer->planner.change.next[l]);
}

static void experts_follow(const char *settings, uint64_t from,
                           void (*change)(struct mp_trainer *, int round)) {
    AUTO(trainer) struct mp_trainer *trainer = create_trainer(world, NULL, settings);
    int64_t moved = 0;
    random_state = from;
    for (int round = 0; round < ROUNDS; round++) {
        change(trainer, round);
        fill(trainer, round);
        mp_experts_refresh_all(&mp_trainer_model(trainer)->experts, NULL);
        must(rehome(trainer, false, &error));
        moved += trainer->planner.moves.count;
        check(trainer, round);
        check_elements(trainer);
        take_over(trainer);
    }
    assert_int_equal(moved > 0, world->ranks > 1);
}

TEST(experts_follow_their_owners) {
    experts_follow("system=fssdp layers=3", seed, change_owners);
}

/* Replicas come and go: every rank keeps a random set, as many as it has slots at most. */
static void random_holders(struct mp_trainer *trainer, UNUSED int round) {
    int32_t owner[ALL];
    int kept[64] = {0};
    for (int i = 0; i < ALL; i++)
        owner[i] = i % world->ranks;
    shuffle(owner, ALL);
    set_owners(trainer->planner.change.next, owner);
    for (int i = 0; i < ALL; i++)
        kept[owner[i]]++;
    for (int tries = test_random_int(&random_state, 0, 4 * ALL); tries > 0; tries--) {
        int i = test_random_int(&random_state, 0, ALL - 1);
        int r = test_random_int(&random_state, 0, world->ranks - 1);
        if (keeps(trainer->planner.change.next, i, r) || kept[r] == trainer->planner.homes_limit)
            continue;
        kept[r]++;
        mp_placement_add(&trainer->planner.change.next[i / EXPERTS], i % EXPERTS, r);
    }
}

static const struct levels {
    const char *name, *settings;
} levels[] = {
    {"replicas of ranks", "system=flexmoe layers=3"},
    {"replicas of hosts", "system=flexmoe layers=3 options.offload-optimizer=yes"},
};

TEST_EACH(replicas_come_and_go, levels, c) {
    experts_follow(c->settings, seed + 1, random_holders);
}

/* Some holders of random experts come, and some go: before it all of them fit beside each other. */
static void change_some_holders(struct mp_trainer *trainer) {
    int kept[64] = {0};
    for (int l = 0; l < LAYERS; l++)
        mp_placement_copy(&trainer->planner.change.next[l], &trainer->planner.home[l]);
    for (int i = 0; i < ALL; i++)
        for (int r = 0; r < world->ranks; r++)
            kept[r] += keeps(trainer->planner.home, i, r);
    for (int tries = 0; tries < 4 * ALL; tries++) {
        int i = test_random_int(&random_state, 0, ALL - 1);
        int r = test_random_int(&random_state, 0, world->ranks - 1);
        struct mp_placement *next = &trainer->planner.change.next[i / EXPERTS];
        int expert = i % EXPERTS;
        if (!mp_placement_holds(next, expert, r) && kept[r] < trainer->planner.homes_limit) {
            kept[r]++;
            mp_placement_add(next, expert, r);
            next->owner[expert] = tries % 2 ? r : next->owner[expert];
        } else if (mp_placement_holds(next, expert, r) && next->owner[expert] != r) {
            mp_placement_remove(next, expert, r);
        }
    }
}

/* Until the wait every rank still has what it had, as it was. */
TEST_EACH(asynchronous_moves_leave_what_is_in_use, levels, c) {
    AUTO(trainer) struct mp_trainer *trainer = create_trainer(world, NULL, c->settings);
    int64_t moved = 0;
    random_state = seed + 3;
    trainer->planner.change.changed = trainer->planner.change.asynchronous = true;
    for (int round = 0; round < ROUNDS; round++) {
        change_some_holders(trainer);
        fill(trainer, round);
        must(rehome(trainer, false, &error));
        moved += trainer->planner.moves.count;
        for (int i = 0; i < ALL; i++)
            for (int w = 0; w < 3 && keeps(trainer->planner.home, i, world->rank); w++)
                check_buffer(&mp_trainer_model(trainer)->experts, w, i, i, round);
        must(mp_moves_wait(&trainer->moves, &error));
        check(trainer, round);
    }
    assert_int_equal(moved > 0, world->ranks > 1);
}

/* The i-th expert to arrive in a layer goes on with the moments of the i-th to leave it. */
TEST(state_stays_behind) {
    AUTO(trainer) struct mp_trainer *trainer = create_trainer(world, NULL, "system=fssdp layers=3");
    struct mp_experts *experts = &mp_trainer_model(trainer)->experts;
    random_state = seed + 2;
    for (int round = 0; round < ROUNDS; round++) {
        int32_t wanted[ALL];
        for (int i = 0; i < ALL; i++)
            wanted[i] = trainer->planner.home[i / EXPERTS].owner[i % EXPERTS];
        for (int l = 0; l < LAYERS; l++)
            shuffle(wanted + (size_t)l * EXPERTS, EXPERTS);
        set_owners(trainer->planner.change.next, wanted);
        fill(trainer, round);
        int left[ALL], count = 0; /* this rank's, in ascending order of layer and expert */
        for (int i = 0; i < ALL; i++)
            if (keeps(trainer->planner.home, i, world->rank) && wanted[i] != world->rank)
                left[count++] = i;
        bool stays[ALL];
        for (int i = 0; i < ALL; i++)
            stays[i] = keeps(trainer->planner.home, i, world->rank);
        must(rehome(trainer, true, &error));
        check_slots(trainer);
        int next = 0;
        for (int i = 0; i < ALL; i++) {
            if (wanted[i] != world->rank)
                continue;
            int moments = stays[i] ? i : left[next++];
            check_buffer(experts, 0, i, i, round);
            check_buffer(experts, 1, i, moments, round);
            check_buffer(experts, 2, i, moments, round);
        }
        assert_int_equal(next, count);
        take_over(trainer);
    }
}

/* Were a rank to keep more than its slots, the moves end with a sentence on every rank. */
TEST(too_many_for_the_slots_are_refused) {
    AUTO(trainer) struct mp_trainer *trainer = create_trainer(world, NULL, "system=fssdp layers=3");
    struct mp_error error = {0};
    int32_t wanted[ALL] = {0};
    set_owners(trainer->planner.change.next, wanted);
    int code = rehome(trainer, false, &error);
    if (world->ranks == 1) { /* all of it is rank 0's already */
        assert_int_equal(trainer->planner.moves.count, 0);
        assert_int_equal(code, MP_OK);
    } else {
        assert_int_equal(code, MP_EPLAN);
        assert_contains(error.text, "moves need more than");
    }
}
