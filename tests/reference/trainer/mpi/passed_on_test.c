/* Rows that other ranks pass on arrive in the same order, so that nothing else changes: losses of
 * every system that leaves rows to the job's exchange have the bits of a flat exchange, forward and
 * backward, whatever the nodes.  Where tokens' rows are deduplicated, what comes back is summed in
 * another order: nearly the same bits, also of tokens in chunks.
 * Rows that are cut into chunks arrive in the same order of chunks whatever the exchange, and sums
 * over them are nearly those of whole rows. */
#include "tests/reference/trainer/mpi/trainers.h"

enum { STEPS = 3 };

/* One per system: copies, replicas, slices, padding and drops, one hot expert. */
static const char *const cases[] = {
    "system=ep routing=skewed skew-experts=1 skew-share=0.5",
    "system=fssdp options.overlap=2 options.rematerialise=yes",
    "system=deepspeed options.capacity-factor=0.5",
    "system=fastermoe options.smart-schedule=no options.policy=paper",
    "system=swiftmoe gate=switch",
    "system=laer options.window=1",
    "system=flexmoe options.interval=1",
    "system=llep options.smallest-gemm=1 options.threshold=1",
    "system=moonep gate=softmax top-k=4",
};
enum { CASES = sizeof cases / sizeof *cases };

/* A case with an exchange of some degree in so many nodes. */
static void run_degree(const char *given, enum mp_exchange_kind kind, int degree, int nodes,
                       double loss[STEPS]) {
    losses_of(world,
              formatted("exchange=%s ranks-per-node=%d exchange-degree=%d %s",
                        mp_exchange_name(kind), world->ranks / nodes, degree, given),
              MP_VOCABULARY, STEPS, loss);
}

static void run_case(const char *given, enum mp_exchange_kind kind, int nodes, double loss[STEPS]) {
    run_degree(given, kind, 1, nodes, loss);
}

/* One that is flat, whose choices the next ones follow. */
static void run_to_follow(const char *given, int nodes, double loss[STEPS],
                          struct choices *choices) {
    noted = choices;
    run_case(given, MP_EXCHANGE_FLAT, nodes, loss);
    noted = NULL;
    followed = choices;
}

/* Nearly: sums are taken in another order. */
static void assert_near(const char *given, int degree, const double loss[], const double other[]) {
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(loss[i] - other[i]) <= 3e-6))
            fail_msg("%s, degree %d, step %d: loss %.17g, not %.17g", given, degree, i, loss[i],
                     other[i]);
}

TEST(bits_are_those_of_a_flat_exchange) {
    int nodes = 1;
    for (int i = 0; i < 2 * CASES; i++) {
        double flat[STEPS], loss[STEPS];
        const char *given = cases[i / 2];
        run_case(given, MP_EXCHANGE_FLAT, nodes, flat);
        run_case(given, i % 2 ? MP_EXCHANGE_LEADER : MP_EXCHANGE_TWO_LEVEL, nodes, loss);
        if (memcmp(loss, flat, sizeof flat) != 0)
            fail_msg("%s on %d nodes: losses %.17g .. %.17g, flat %.17g .. %.17g", given, nodes,
                     loss[0], loss[STEPS - 1], flat[0], flat[STEPS - 1]);
        nodes = 2 * nodes > world->ranks ? 1 : 2 * nodes;
    }
}

/* Every system cut into 2, 4 and 8 in turn, padded rows too: those of one rank's routes may be
 * fewer than chunks. */
TEST(chunks_are_those_of_a_flat_exchange) {
    int nodes = 1;
    for (int i = 0; i < CASES; i++) {
        double whole[STEPS], flat[STEPS], loss[STEPS];
        const char *given = cases[i];
        int degree = 2 << i % 3;
        AUTO(choices) struct choices choices = {0};
        run_to_follow(given, nodes, whole, &choices);
        run_degree(given, MP_EXCHANGE_FLAT, degree, nodes, flat);
        run_degree(given, i % 2 ? MP_EXCHANGE_LEADER : MP_EXCHANGE_TWO_LEVEL, degree, nodes, loss);
        if (memcmp(loss, flat, sizeof flat) != 0)
            fail_msg("%s on %d nodes, degree %d: losses %.17g .. %.17g, flat %.17g .. %.17g", given,
                     nodes, degree, loss[0], loss[STEPS - 1], flat[0], flat[STEPS - 1]);
        assert_near(given, degree, flat, whole);
        nodes = 2 * nodes > world->ranks ? 1 : 2 * nodes;
    }
}

TEST(sums_are_nearly_those_of_a_flat_exchange) {
    int nodes = 1;
    for (int i = 0; i < CASES; i++) {
        double flat[STEPS], loss[STEPS];
        AUTO(choices) struct choices choices = {0};
        if (strncmp(cases[i], "system=deepspeed", 16) == 0) /* pads rows */
            continue;
        run_to_follow(cases[i], nodes, flat, &choices);
        for (int degree = 1; degree <= MP_MOST_DEGREE; degree *= degree == 1 ? 2 << i % 3 : 8) {
            run_degree(cases[i], MP_EXCHANGE_DEDUPLICATED, degree, nodes, loss);
            assert_near(cases[i], degree, loss, flat);
        }
        nodes = 2 * nodes > world->ranks ? 1 : 2 * nodes;
    }
}

/* Over several levels of groups in groups, whatever the nodes: experts are where EP has them. */
TEST(levels_are_nearly_a_flat_exchange) {
    static const char *const levels[] = {"2", "4:2", "8:2", "8:4:2"};
    static const int least[] = {2, 4, 8, 8}; /* ranks */
    double expected[STEPS], loss[STEPS];
    AUTO(choices) struct choices choices = {0};
    run_to_follow("system=ep gate=softmax top-k=6", 1, expected, &choices);
    for (int i = 0; i < 4 && least[i] <= world->ranks; i++)
        for (int degree = 1; degree <= 3; degree += 2) {
            char given[128];
            snprintf(given, sizeof given,
                     "system=hiermoe gate=softmax top-k=6 options.hierarchy=%s options.interval=0",
                     levels[i]);
            run_degree(given, MP_EXCHANGE_DEDUPLICATED, degree, 1 << (i + degree) % 2, loss);
            assert_near(given, degree, loss, expected);
        }
}
