/* Owner changes: whatever the permutation of owners, parameters and both moments follow and no rank
 * ever needs more than its spare slot. */
#include "tests/reference/trainer/mpi/trainers.h"

enum { EXPERTS = 8, ALL = 3 * EXPERTS, ROUNDS = 60 };
static uint64_t random_state; /* the same on every rank */

/* What buffer `which` of an expert holds at `at` after `round` rounds. */
static float value(int expert, int which, size_t at, int round) {
    return (float)(expert * 1000 + which * 250 + (int)(at % 199)) + (float)round / 128;
}

static float *buffer(struct mp_experts *experts, int which, int expert) {
    float *memory[] = {experts->parameter, experts->first, experts->second};
    assert_true(experts->slot[expert] >= 0);
    return memory[which] + (size_t)experts->slot[expert] * experts->chunk;
}

static void fill(struct mp_trainer *trainer, int round) {
    struct mp_experts *experts = &mp_trainer_model(trainer)->experts;
    for (int i = 0; i < ALL; i++)
        for (int w = 0; w < 3 && trainer->owner[i] == world->rank; w++)
            for (size_t at = 0; at < experts->chunk; at++)
                buffer(experts, w, i)[at] = value(i, w, at, round);
}

static void check(struct mp_trainer *trainer, const int32_t wanted[ALL], int round) {
    struct mp_experts *experts = &mp_trainer_model(trainer)->experts;
    int held = 0;
    for (int i = 0; i < ALL; i++) {
        bool mine = wanted[i] == world->rank;
        assert_int_equal(trainer->owner[i], wanted[i]);
        assert_int_equal(experts->slot[i] >= 0, mine);
        held += mine;
        for (int w = 0; w < 3 && mine; w++)
            for (size_t at = 0; at < experts->chunk; at++)
                if (buffer(experts, w, i)[at] != value(i, w, at, round))
                    fail_msg("round %d, expert %d, buffer %d, at %zu: %g", round, i, w, at,
                             (double)buffer(experts, w, i)[at]);
    }
    assert_int_equal(experts->held, held);
    assert_true(held <= trainer->slots);
    int used = 0;
    for (int s = 0; s < experts->slots; s++)
        used += experts->used[s];
    assert_int_equal(used, held);
}

/* The list of moves that makes `wanted` of the present owners, in random order. */
static void list_moves(struct mp_trainer *trainer, const int32_t wanted[ALL]) {
    struct mp_error error = {0};
    struct mp_transfers *moves = &trainer->moves;
    moves->count = 0;
    for (int i = 0; i < ALL; i++) {
        struct mp_transfer move = {i / EXPERTS,
                                   i % EXPERTS,
                                   trainer->owner[i],
                                   wanted[i],
                                   trainer->setting.expert_bytes * 3,
                                   MP_STAGE_AFTER_STEP};
        if (wanted[i] != trainer->owner[i])
            must(mp_transfers_add(moves, move, &error), &error);
    }
    for (int i = moves->count - 1; i > 0; i--) {
        int j = test_random_int(&random_state, 0, i);
        struct mp_transfer kept = moves->item[i];
        moves->item[i] = moves->item[j];
        moves->item[j] = kept;
    }
    must(mp_moves_check(moves, trainer->owner, 3, EXPERTS, world->ranks, trainer->slots, &error),
         &error);
}

static void shuffle(int32_t owner[ALL]) {
    for (int i = ALL - 1; i > 0; i--) {
        int j = test_random_int(&random_state, 0, i);
        int32_t kept = owner[i];
        owner[i] = owner[j];
        owner[j] = kept;
    }
}

/* Every kind of change: a shuffle, everything to the next rank, two ranks exchange all. */
static void change_owners(const struct mp_trainer *trainer, int round, int32_t wanted[ALL]) {
    memcpy(wanted, trainer->owner, ALL * sizeof *wanted);
    int a = test_random_int(&random_state, 0, world->ranks - 1);
    int b = test_random_int(&random_state, 0, world->ranks - 1);
    if (round % 3 == 0)
        shuffle(wanted);
    for (int i = 0; i < ALL; i++) {
        if (round % 3 == 1)
            wanted[i] = (wanted[i] + 1) % world->ranks;
        if (round % 3 == 2)
            wanted[i] = wanted[i] == a ? b : wanted[i] == b ? a : wanted[i];
    }
}

static void experts_follow_their_owners(void **state) {
    (void)state;
    static const char *const settings[] = {"system=fssdp", "layers=3", NULL};
    struct mp_trainer *trainer = create_trainer(world, NULL, settings);
    int64_t moved = 0;
    random_state = seed;
    for (int round = 0; round < ROUNDS; round++) {
        int32_t wanted[ALL];
        struct mp_error error = {0};
        change_owners(trainer, round, wanted);
        fill(trainer, round);
        list_moves(trainer, wanted);
        moved += trainer->moves.count;
        must(mp_trainer_move_owners(trainer, &error), &error);
        check(trainer, wanted, round);
    }
    assert_int_equal(moved > 0, world->ranks > 1);
    mp_trainer_destroy(trainer);
}

/* Were a rank to own more than its slots, the moves end with a sentence on every rank. */
static void too_many_for_the_slots_are_refused(void **state) {
    (void)state;
    static const char *const settings[] = {"system=fssdp", "layers=3", NULL};
    struct mp_trainer *trainer = create_trainer(world, NULL, settings);
    struct mp_error error = {0};
    trainer->moves.count = 0;
    for (int i = 0; i < ALL; i++) {
        struct mp_transfer move = {i / EXPERTS, i % EXPERTS, trainer->owner[i],
                                   0,           1,           MP_STAGE_AFTER_STEP};
        if (trainer->owner[i] != 0)
            must(mp_transfers_add(&trainer->moves, move, &error), &error);
    }
    if (world->ranks == 1) { /* all of it is rank 0's already */
        assert_int_equal(trainer->moves.count, 0);
        assert_int_equal(mp_trainer_move_owners(trainer, &error), MP_OK);
    } else {
        assert_int_equal(mp_trainer_move_owners(trainer, &error), MP_EPLAN);
        assert_non_null(strstr(error.text, "owner changes need more than"));
    }
    mp_trainer_destroy(trainer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_follow_their_owners),
        cmocka_unit_test(too_many_for_the_slots_are_refused),
    };
    run_on_all_ranks("owner changes", tests, NULL, NULL);
}
