/* Exactness: the loss curve of every system, number of ranks and combination of options equals that
 * of one rank within 1e-4 relative, while its mechanisms really act.
 *
 * Runs under mpirun; all ranks go through the same cases in the same order.  The reference curves
 * are computed by rank 0 alone. */
#include <string.h>

#include "reference/model/random.h"
#include "tests/reference/trainer/mpi/trainers.h"

enum { ITERATIONS = 50, SEQUENCE = 16, BATCH = 8, MAX_CASES = 128, MAX_DRAWS = 50 };
static const double TOLERANCE = 1e-4;
/* Where two experts' probabilities are closer than this at the edge of a token's choice, rounding
 * may decide either way and the curves part for good; such a reference is drawn again. */
static const double LEAST_MARGIN = 4e-7;

static uint64_t first_seed; /* `seed` is the one that the gate's reference was drawn with */

/* Whether experts must have been copied after the gate. */
enum late_copies { MAY_COPY, MUST_COPY, MUST_NOT_COPY };

struct exact_case {
    char name[128];
    const char *gate;
    const char *settings[10];
    bool moves;     /* owners must have changed */
    bool copies;    /* copies must have been fetched before the gate */
    bool refetches; /* copies must have been fetched again for backward */
    enum late_copies late;
};

struct outcome {
    double loss[ITERATIONS];
    double margin; /* smallest difference between the last chosen expert and the first not chosen */
    struct mp_trainer_totals totals;
};

/* Text whose domains change over the iterations, so that experts specialise and loads move. */
static void make_tokens(int64_t iteration, int sequence, int32_t *token, int32_t *target) {
    uint64_t domain = mp_random_below(seed, 1, (uint64_t)(iteration * BATCH + sequence), 3) +
                      (uint64_t)iteration / 20;
    int32_t previous = (int32_t)(domain * 40 % 256);
    for (int s = 0; s <= SEQUENCE; s++) {
        uint64_t draw = mp_random_below(seed, 2 + domain,
                                        (uint64_t)((iteration * BATCH + sequence) * 64 + s), 8);
        previous = (int32_t)((draw < 5 ? (uint64_t)previous * 5 + domain * 31 + 7
                                       : draw * 3 + domain * 40) %
                             256);
        if (s < SEQUENCE)
            token[s] = previous;
        if (s > 0)
            target[s - 1] = previous;
    }
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static double smallest_margin(struct mp_model *model) {
    double smallest = 1;
    int experts = model->shape.experts, last = model->shape.top_k - 1;
    for (int l = 0; l < model->shape.layers; l++)
        for (int t = 0; t < model->tokens; t++) {
            float sorted[64];
            memcpy(sorted, model->state[l].probability + (size_t)t * (size_t)experts,
                   (size_t)experts * sizeof *sorted);
            qsort(sorted, (size_t)experts, sizeof *sorted, descending);
            smallest = fmin(smallest, (double)sorted[last] - (double)sorted[last + 1]);
        }
    return smallest;
}

static void run(const struct exact_case *c, struct mp_comm *comm, struct outcome *outcome) {
    const char *settings[sizeof c->settings / sizeof *c->settings + 2] = {c->gate};
    for (int i = 0; c->settings[i]; i++)
        settings[i + 1] = c->settings[i];
    struct mp_trainer *trainer = create_trainer(comm, NULL, settings);
    outcome->margin = 1;
    int sequences = BATCH / comm->ranks;
    int32_t token[BATCH * SEQUENCE], target[BATCH * SEQUENCE];
    for (int i = 0; i < ITERATIONS; i++) {
        for (int b = 0; b < sequences; b++)
            make_tokens(i, comm->rank * sequences + b, token + b * SEQUENCE, target + b * SEQUENCE);
        struct mp_trainer_result result;
        struct mp_error error = {0};
        must(mp_trainer_step_on(trainer, token, target, &result, &error), &error);
        outcome->loss[i] = result.loss;
        outcome->margin = fmin(outcome->margin, smallest_margin(mp_trainer_model(trainer)));
    }
    outcome->totals = *mp_trainer_totals(trainer);
    mp_trainer_destroy(trainer);
}

/* The curve of one rank under plain expert parallelism, the same on every rank afterwards; `seed`
 * becomes the one it was drawn with. */
static const double *reference(bool gshard) {
    static struct {
        double loss[ITERATIONS];
        uint64_t seed;
        bool known;
    } known[2];
    struct exact_case c = {.name = "reference",
                           .gate = gshard ? "gate=gshard" : "gate=switch",
                           .settings = {"system=ep"}};
    if (!known[gshard].known && world->rank == 0) {
        struct mp_comm *self;
        struct outcome outcome = {0};
        assert_int_equal(mp_comm_self_create(&self, NULL), MP_OK);
        int draw = 0;
        for (; draw < MAX_DRAWS && outcome.margin < LEAST_MARGIN; draw++) {
            seed = first_seed + (uint64_t)draw;
            run(&c, self, &outcome);
        }
        mp_comm_destroy(self);
        print_message("%s: draw %d has margins above %.2g\n", c.gate, draw, outcome.margin);
        memcpy(known[gshard].loss, outcome.loss, sizeof outcome.loss);
        known[gshard].seed = seed;
        known[gshard].known = outcome.margin >= LEAST_MARGIN;
    }
    assert_int_equal(mp_comm_broadcast(world, &known[gshard], sizeof known[gshard], 0, NULL),
                     MP_OK);
    assert_true(known[gshard].known);
    seed = known[gshard].seed;
    return known[gshard].loss;
}

static void curve_equals_one_rank(void **state) {
    const struct exact_case *c = *state;
    const double *expected = reference(strcmp(c->gate, "gate=gshard") == 0);
    struct outcome outcome = {0};
    run(c, world, &outcome);
    double worst = 0;
    for (int i = 0; i < ITERATIONS; i++) {
        double difference = fabs(outcome.loss[i] - expected[i]) / expected[i];
        worst = difference > worst ? difference : worst;
        if (!(difference <= TOLERANCE)) {
            print_error("%s, iteration %d: loss %.9g, one rank %.9g\n", c->name, i, outcome.loss[i],
                        expected[i]);
            fail();
        }
    }
    assert_true(expected[ITERATIONS - 1] < 0.9 * expected[0]); /* it learns, so something happens */
    if (world->rank == 0)
        print_message("  largest relative difference %.2g; copies %lld + %lld after the gate, "
                      "%lld fetched again, %lld moves\n",
                      worst, (long long)outcome.totals.copies[MP_STAGE_BEFORE_GATE],
                      (long long)outcome.totals.copies[MP_STAGE_AFTER_GATE],
                      (long long)outcome.totals.copies[MP_STAGE_BACKWARD_PREFETCH],
                      (long long)outcome.totals.moves);
    if (world->ranks == 1)
        return;
    assert_int_equal(outcome.totals.copies[MP_STAGE_BEFORE_GATE] > 0, c->copies);
    assert_int_equal(outcome.totals.copies[MP_STAGE_BACKWARD_PREFETCH] > 0, c->refetches);
    assert_int_equal(outcome.totals.moves > 0, c->moves);
    if (c->late != MAY_COPY)
        assert_int_equal(outcome.totals.copies[MP_STAGE_AFTER_GATE] > 0, c->late == MUST_COPY);
}

/* Shadows under every policy; without drops the released one has none, which is its defect. */
static int make_shadow_cases(const char *gate, struct exact_case cases[]) {
    static const char *const policy[] = {"options.policy=paper", "options.policy=paper-printed",
                                         "options.policy=released-fixed",
                                         "options.policy=released"};
    int count = 0;
    for (size_t p = 0; p < sizeof policy / sizeof *policy; p++) {
        struct exact_case *c = &cases[count++];
        *c = (struct exact_case){
            .gate = gate,
            .settings = {"system=fastermoe", policy[p]},
            .late = strcmp(policy[p], "options.policy=released") == 0 ? MUST_NOT_COPY : MUST_COPY};
        snprintf(c->name, sizeof c->name, "fastermoe %s %s", gate, policy[p] + 8);
    }
    return count;
}

static int make_cases(struct exact_case cases[MAX_CASES]) {
    /* Systems that neither copy nor move experts. */
    static const char *const plain[][2] = {
        {"system=ep"},
        {"system=skeleton"},
        {"system=skeleton", "options.owners=cyclic"},
    };
    static const char *const gates[] = {"gate=gshard", "gate=switch"};
    static const char *const memory[] = {"options.memory=0", "options.memory=1", "options.memory=4",
                                         "options.memory=all"};
    static const char *const overlap[] = {"options.overlap=0", "options.overlap=2",
                                          "options.overlap=all"};
    static const char *const again[] = {"options.rematerialise=no", "options.rematerialise=yes"};
    int count = 0;
    for (int g = 0; g < 2; g++) {
        for (size_t p = 0; p < sizeof plain / sizeof *plain; p++) {
            struct exact_case *c = &cases[count++];
            *c = (struct exact_case){.gate = gates[g], .settings = {plain[p][0], plain[p][1]}};
            snprintf(c->name, sizeof c->name, "%s %s %s", plain[p][0] + 7, gates[g],
                     plain[p][1] ? plain[p][1] + 8 : "");
        }
        count += make_shadow_cases(gates[g], &cases[count]);
        struct exact_case *frugal = &cases[count++];
        *frugal =
            (struct exact_case){.gate = gates[g],
                                .settings = {"system=fssdp", "options.frugal=yes",
                                             "options.overlap=all", "options.reshard-interval=5"},
                                .copies = true,
                                .moves = true};
        snprintf(frugal->name, sizeof frugal->name, "fssdp %s frugal", gates[g]);
        for (int m = 0; m < 4; m++)
            for (int t = 0; t < 3; t++)
                for (int r = 0; r < 2; r++) {
                    struct exact_case *c = &cases[count++];
                    bool copies = m > 0 && t > 0;
                    *c = (struct exact_case){
                        .gate = gates[g],
                        .settings = {"system=fssdp", memory[m], overlap[t], again[r],
                                     "options.reshard-interval=5"},
                        .copies = copies,
                        .refetches = copies && r == 1,
                        /* Where every expert is hot, owners stay where they are. */
                        .moves = t < 2,
                    };
                    snprintf(c->name, sizeof c->name, "fssdp %s %s %s %s", gates[g], memory[m] + 8,
                             overlap[t] + 8, again[r] + 8);
                }
    }
    return count;
}

int main(void) {
    struct mp_error error = {0};
    if (mp_comm_mpi_create(NULL, &world, &error)) {
        print_error("%s\n", error.text);
        return 1;
    }
    if (world->rank == 0)
        first_seed = test_seed();
    static struct exact_case cases[MAX_CASES];
    static struct CMUnitTest tests[MAX_CASES];
    int count = make_cases(cases);
    for (int i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){cases[i].name, curve_equals_one_rank, NULL, NULL, &cases[i]};
    int failed = _cmocka_run_group_tests("exact", tests, (size_t)count, NULL, NULL);
    mp_comm_destroy(world);
    return failed != 0;
}
