/* Exactness of whatever a stranger's system may plan: jobs of any shape, gate and exchange under
 * the wanderer (tests/reference/plan/wanderer.h), and then under another one, have the losses of
 * one rank.  MOEPERF_ON in the environment: settings of where they run, "device=cuda". */
#include "tests/exact/gates.h"
#include "tests/harness/folder.h"
#include "tests/reference/plan/wanderer.h"

#include "reference/trainer/place.h"
#include "tests/reference/trainer/mpi/trainers.h"

enum { STEPS = 6, CASES = 40, KINDS = 256, MOST = 1024 };
static const double TOLERANCE = 5e-6; /* rounding makes some 1e-7 of it */

/* Over all cases. */
static struct mp_trainer_totals met;

/* What one rank and all of them have in common. */
static void draw_shape(uint64_t *random, char text[MOST]) {
    snprintf(text, MOST, "layers=%d experts=%d %s batch=%d sequence=16",
             test_random_int(random, 1, 6), 8 * test_random_int(random, 1, 2),
             gates[test_random_int(random, 0, GATES - 1)].settings, 2 * world->ranks);
}

static void draw_settings(uint64_t *random, const char *shape, char text[2 * MOST]) {
    const enum mp_exchange_kind exchange =
        (enum mp_exchange_kind)test_random_int(random, 0, MP_EXCHANGE_PIPELINED - 1);
    const bool whole = mp_exchange_of(exchange)->deduplicates;
    const bool cut = test_random_int(random, 0, 2) == 0;
    int nodes = test_random_int(random, 1, 4);
    char system[MOST];
    while (world->ranks % nodes != 0)
        nodes--;
    snprintf(text, 2 * MOST,
             "%s ranks-per-node=all nodes=%d exchange=%s exchange-degree=%d expert-shards=%d %s",
             shape, nodes, mp_exchange_name(exchange),
             cut ? test_random_int(random, 2, MP_MOST_DEGREE) : 1,
             whole ? 1 : 1 << test_random_int(random, 0, 2), draw_wanderer(random, system));
}

static void add_totals(const struct mp_trainer *trainer) {
    const struct mp_trainer_totals *totals = mp_trainer_totals(trainer);
    for (int stage = 0; stage < MP_STAGES; stage++)
        met.copies[stage] += totals->copies[stage];
    met.moves += totals->moves;
    met.replicas += totals->replicas;
    met.dropped += totals->dropped;
}

/* Of the present trainer. */
static struct mp_place place;

static int take_place(const struct mp_job *job, struct mp_comm **comm, struct mp_device **device,
                      struct mp_error *error) {
    int code = mp_place_create(job, "a test", &place, error);
    *comm = place.comm;
    *device = place.device;
    return code;
}

static struct mp_trainer *open_trainer(const char *settings) {
    return create_trainer(world, NULL,
                          formatted("%s %s", settings, elsewhere ? getenv("MOEPERF_ON") : ""));
}

static void close_trainer(struct mp_trainer *trainer) {
    add_totals(trainer);
    mp_trainer_destroy(trainer);
    mp_place_destroy(&place);
}

/* A trainer with other settings that goes on where this one stops. */
static struct mp_trainer *change_over(struct mp_trainer *trainer, const char *settings) {
    must(mp_trainer_save(trainer, "saved", &error));
    close_trainer(trainer);
    trainer = open_trainer(settings);
    must(mp_trainer_restore(trainer, "saved", &error));
    return trainer;
}

/* Losses under the wanderer, beside `expected`. */
static void compare(const char *const settings[2], const double expected[]) {
    struct mp_trainer *trainer = open_trainer(settings[0]);
    for (int step = 0; step < STEPS; step++) {
        if (step == STEPS / 2)
            trainer = change_over(trainer, settings[1]);
        struct mp_trainer_result result = random_step(trainer, KINDS);
        double loss = result.loss + result.auxiliary_loss;
        if (!(fabs(loss - expected[step]) <= TOLERANCE * expected[step]))
            fail_msg("step %d: %.9g, on one rank %.9g, of %s", step, loss, expected[step],
                     settings[step >= STEPS / 2]);
    }
    close_trainer(trainer);
}

TEST(any_plans_have_the_losses_of_one_rank) {
    uint64_t state = seed, *random = &state;         /* the same on every rank */
    const int cases = elsewhere ? CASES / 8 : CASES; /* the double of a GPU lets ranks wait */
    for (int i = 0; i < cases; i++) {
        char shape[MOST], settings[2][2 * MOST];
        double expected[STEPS];
        AUTO(choices) struct choices choices = {0};
        draw_shape(random, shape);
        for (int half = 0; half < 2; half++)
            draw_settings(random, shape, settings[half]);
        if (world->rank == 0) {
            /* A rank that fails may say less. */
            print_message("  %s\n  then %s\n", settings[0], settings[1]);
            noted = &choices;
            losses_of(alone, formatted("system=ep %s", shape), KINDS, STEPS, expected);
            noted = NULL;
        }
        must(mp_comm_broadcast(world, expected, sizeof expected, 0, &error));
        share_choices(&choices);
        followed = &choices;
        compare((const char *const[]){settings[0], settings[1]}, expected);
    }
    for (int stage = 0; stage < MP_STAGES; stage++)
        assert_true(met.copies[stage] > 0 || stage == MP_STAGE_BACKWARD_REDUCE || elsewhere);
    assert_true((met.moves > 0 && met.replicas > 0) || elsewhere);
    assert_int_equal(met.dropped, 0);
}

static int enter(void **state) {
    int code = world->rank == 0 ? enter_folder(state) : 0;
    must(mp_comm_broadcast(world, test_folder, sizeof test_folder, 0, &error));
    further_system = &wanderer;
    elsewhere = getenv("MOEPERF_ON") ? take_place : NULL;
    return code || chdir(test_folder);
}

static int leave(void **state) {
    mp_comm_barrier(world, NULL);
    return world->rank == 0 ? leave_folder(state) : 0;
}

TEST_GROUP(enter, leave);
