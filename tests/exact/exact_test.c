/* Exactness: the loss curve of every system, number of ranks and combination of options equals that
 * of one rank within 1e-4 relative, on one declared node and on several, while its mechanisms
 * really act.  With the argument --matrix every system has all gates, by turns flat and in two
 * levels.
 *
 * Runs under mpirun; all ranks go through the same cases in the same order.  The reference curves
 * are computed by rank 0 alone, whose gates' choices the others take (trainers.h). */
#define OWN_MAIN
#include "tests/exact/gates.h"
#include "tests/reference/trainer/mpi/trainers.h"

enum { ITERATIONS = 50, SEQUENCE = 16, BATCH = 8 };
static const double TOLERANCE = 1e-4;

/* What must have happened, and none of the others; and where a case can be run. */
enum {
    COPIES = 1 << 0,    /* fetched before the gate */
    LATE = 1 << 1,      /* copies, fetched after the gate */
    REFETCHES = 1 << 2, /* copies, fetched in backward: again, or for the next iteration */
    MOVES = 1 << 3,     /* homes changed */
    REPLICAS = 1 << 4,  /* tied replicas were updated, or sums shared between holders */
    GATHERS = 1 << 5,   /* experts were put together from slices after steps */
    OFFLOADS = 1 << 6,  /* updates were made in host memory */
    PADDED = 1 << 7,    /* rows without a token travelled */
    ACTS = (1 << 8) - 1,
    MAY_BE_LATE = 1 << 8, /* whether or not LATE */
    MAY_STAY = 1 << 9,    /* MOVES if the draw makes them: with shards loads may be even enough */
    WIDE = 1 << 10,       /* 16 experts: 8 on as many ranks are balanced by nothing but copies */
    NARROW = 1 << 11,     /* 2 experts, on more ranks */
    FROM_2 = 1 << 12,     /* ranks, below which it can't act so */
    FROM_4 = 1 << 13,
    FROM_8 = 1 << 14,
    UP_TO_4 = 1 << 15,    /* above which it acts otherwise */
    MAY_REFUSE = 1 << 16, /* its system has rows travel in its own way */
};

struct exact_case {
    char settings[192];
    unsigned what;
    int group_size;          /* of the pipelined exchange that must have been used; 0: another */
    int chunks;              /* that rows must have been cut into; 0: none */
    int nodes;               /* declared; 0: what is its turn */
    const struct gate *gate; /* one of `gates` */
    char name[192];
};

struct outcome {
    double loss[ITERATIONS];
    struct mp_trainer_totals totals;
    int steps;       /* of the last exchange */
    int64_t padding; /* rows of a pair in it */
    int64_t host_bytes;
    bool refused;
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

/* What 8 ranks do, and the many cases of the matrix, show in fewer iterations. */
static bool matrix;
static int iterations_of(const struct mp_comm *comm) {
    return matrix ? ITERATIONS / 4 : comm->ranks < 8 ? ITERATIONS : ITERATIONS / 2;
}

static void run(const struct exact_case *c, struct mp_comm *comm, struct outcome *outcome) {
    int experts = c->what & NARROW ? 2 : c->what & WIDE ? 16 : 8;
    struct mp_error refusal;
    struct mp_trainer *trainer =
        try_trainer(comm, NULL,
                    formatted("experts=%d ranks-per-node=all nodes=%d %s %s", experts, c->nodes,
                              c->gate->settings, c->settings),
                    &refusal);
    outcome->refused = (c->what & MAY_REFUSE) && refusal.code == MP_EREFUSED;
    if (outcome->refused) {
        if (comm->rank == 0)
            print_message("  refused: %s\n", refusal.text);
        return;
    }
    end_all_unless(refusal.code, &refusal);
    assert_int_equal(comm->ranks_per_node, comm->ranks / (c->nodes ? c->nodes : 1));
    int sequences = BATCH / comm->ranks, iterations = iterations_of(comm);
    int32_t token[BATCH * SEQUENCE], target[BATCH * SEQUENCE];
    for (int i = 0; i < iterations; i++) {
        for (int b = 0; b < sequences; b++)
            make_tokens(i, comm->rank * sequences + b, token + b * SEQUENCE, target + b * SEQUENCE);
        struct mp_trainer_result result;
        must(mp_trainer_step_on(trainer, token, target, &result, &error));
        outcome->loss[i] = result.loss;
    }
    outcome->totals = *mp_trainer_totals(trainer);
    outcome->steps = mp_trainer_model(trainer)->state[0].routing.steps;
    outcome->padding = mp_trainer_model(trainer)->state[0].routing.padding;
    outcome->host_bytes = mp_trainer_model(trainer)->experts.host_bytes;
    mp_trainer_destroy(trainer);
}

/* The curve of one rank under plain expert parallelism, the same on every rank afterwards. */
struct curve {
    double loss[ITERATIONS];
    struct choices choices;
    bool known;
};

static const struct curve *reference(const struct exact_case *c) {
    static struct curve curves[GATES][3];
    struct curve *curve = &curves[c->gate - gates][c->what & NARROW ? 2 : c->what & WIDE ? 1 : 0];
    struct exact_case one = {"system=ep", .what = c->what & (NARROW | WIDE), .gate = c->gate};
    if (curve->known)
        return curve;
    if (world->rank == 0) {
        struct outcome outcome = {0};
        noted = &curve->choices;
        run(&one, alone, &outcome);
        noted = NULL;
        memcpy(curve->loss, outcome.loss, sizeof outcome.loss);
    }
    must(mp_comm_broadcast(world, curve->loss, sizeof curve->loss, 0, &error));
    share_choices(&curve->choices);
    curve->known = true;
    return curve;
}

/* The system has done what it is there for. */
static void mechanism_has_acted(const struct exact_case *c, const struct outcome *outcome) {
    const struct mp_trainer_totals *totals = &outcome->totals;
    const int64_t *copies = totals->copies;
    unsigned either = (c->what & MAY_STAY ? MOVES : 0) | (c->what & MAY_BE_LATE ? LATE : 0);
    unsigned acted = (copies[MP_STAGE_BEFORE_GATE] ? COPIES : 0) |
                     (copies[MP_STAGE_AFTER_GATE] ? LATE : 0) |
                     (copies[MP_STAGE_BACKWARD_PREFETCH] ? REFETCHES : 0) |
                     (copies[MP_STAGE_AFTER_STEP] ? GATHERS : 0) | (totals->moves ? MOVES : 0) |
                     (totals->replicas ? REPLICAS : 0) | (outcome->padding ? PADDED : 0) |
                     (outcome->host_bytes ? OFFLOADS : 0);
    assert_int_equal(acted & ~either, c->what & ACTS & ~either);
    assert_int_equal(outcome->steps, c->group_size ? world->ranks / c->group_size
                                     : c->chunks   ? c->chunks
                                                   : 1);
}

/* Not the last loss, which the text's last change of domains may have raised. */
static double lowest(const double loss[], int iterations) {
    double least = loss[0];
    for (int i = 1; i < iterations; i++)
        least = fmin(least, loss[i]);
    return least;
}

static void curve_equals_one_rank(void **state) {
    const struct exact_case *c = *state;
    const struct curve *curve = reference(c);
    const double *expected = curve->loss;
    struct outcome outcome = {0};
    followed = &curve->choices;
    updates_early = c->gate == &gates[1]; /* the others update behind backward */
    run(c, world, &outcome);
    followed = NULL;
    if (outcome.refused)
        return;
    double worst = 0;
    for (int i = 0; i < iterations_of(world); i++) {
        double difference = fabs(outcome.loss[i] - expected[i]) / expected[i];
        worst = difference > worst ? difference : worst;
        if (!(difference <= TOLERANCE)) {
            print_error("%s, iteration %d: loss %.9g, one rank %.9g\n", c->name, i, outcome.loss[i],
                        expected[i]);
            fail();
        }
    }
    assert_true(lowest(expected, iterations_of(alone)) <
                0.9 * expected[0]); /* it learns, so something happens */
    assert_true(outcome.totals.routes > 0);
    assert_int_equal(outcome.totals.dropped, 0);
    if (world->rank == 0)
        print_message("  largest relative difference %.2g; copies %lld + %lld after the gate, "
                      "%lld fetched again, %lld gathered, %lld replicas, %lld moves\n",
                      worst, (long long)outcome.totals.copies[MP_STAGE_BEFORE_GATE],
                      (long long)outcome.totals.copies[MP_STAGE_AFTER_GATE],
                      (long long)outcome.totals.copies[MP_STAGE_BACKWARD_PREFETCH],
                      (long long)outcome.totals.copies[MP_STAGE_AFTER_STEP],
                      (long long)outcome.totals.replicas, (long long)outcome.totals.moves);
    /* What acts under which loads has been seen with the gates that meet every case. */
    if (world->ranks > 1 && c->gate - gates < FIRST && !(c->what & WIDE))
        mechanism_has_acted(c, &outcome);
}

static const struct exact_case rows[] = {
    {"system=ep", .what = 0},
    {"system=skeleton", .what = 0},
    {"system=tamoe", .what = 0},
    {"system=skeleton options.owners=cyclic", .what = 0},
    /* Shadows under every policy; without drops the released one has none, which is its defect. */
    {"system=fastermoe options.smart-schedule=no", .what = LATE},
    {"system=fastermoe options.policy=paper-printed options.group-size=1", .what = LATE,
     .group_size = 1},
    {"system=fastermoe options.policy=released-fixed options.group-size=2", .what = LATE | FROM_2,
     .group_size = 2},
    {"system=fastermoe options.policy=released options.group-size=1", .group_size = 1},
    /* Groups of two ranks, which are replicas of each other's experts and shadow by themselves. */
    {"system=fastermoe options.group-size=1", .what = MAY_BE_LATE | REPLICAS | NARROW | FROM_4,
     .group_size = 1},
    {"system=smartmoe options.smart-schedule=no options.shadows=0 options.interval=5",
     .what = REPLICAS | NARROW | FROM_4},
    {"system=frugal options.overlap=all options.reshard-interval=5",
     .what = COPIES | MAY_BE_LATE | MOVES},
    {"system=ep options.expert-parallel=1", .what = REPLICAS},
    /* Room for every route, padded and not, and replicas of all experts. */
    {"system=deepspeed options.capacity-factor=16", .what = PADDED},
    {"system=deepspeed options.drop-tokens=no", .what = PADDED},
    {"system=deepspeed options.drop-tokens=no options.dispatch=one-hot options.expert-parallel=1",
     .what = REPLICAS | PADDED},
    {"system=deepspeed options.capacity-factor=16 options.padded=no", .what = 0},
    {"system=deepspeed options.capacity-factor=16 options.expert-parallel=1",
     .what = REPLICAS | PADDED},
    {"system=deepspeed options.drop-tokens=no options.padded=no options.expert-parallel=2",
     .what = REPLICAS | FROM_4},
    /* ZeRO-1 over all replicas, over two of each, and of experts that have none. */
    {"system=deepspeed options.drop-tokens=no options.zero=1 options.expert-parallel=1",
     .what = REPLICAS | GATHERS | PADDED | FROM_2},
    {"system=deepspeed options.drop-tokens=no options.zero=1 options.expert-parallel=1 "
     "options.multi-rank-bucket-allreduce=no options.offload-optimizer=yes",
     .what = GATHERS | OFFLOADS | PADDED | FROM_2},
    {"system=deepspeed options.drop-tokens=no options.zero=1 options.expert-parallel=2 "
     "options.padded=no options.multi-rank-bucket-allreduce=no",
     .what = GATHERS | FROM_4},
    {"system=deepspeed options.drop-tokens=no options.zero=1 options.offload-optimizer=yes",
     .what = OFFLOADS | PADDED},
    {"system=smartmoe options.interval=5 options.group-size=1", .what = LATE | MOVES | WIDE,
     .group_size = 1},
    {"system=smartmoe options.interval=5 options.solver=dynamic-programming "
     "options.smart-schedule=no options.shadows=0",
     .what = MOVES | WIDE},
    {"system=smartmoe options.interval=5 options.solver=hybrid options.group-size=1 "
     "options.shadows=0",
     .what = MOVES | WIDE, .group_size = 1},
    {"system=flexmoe options.slots=5 options.interval=5", .what = MOVES | REPLICAS | FROM_2},
    {"system=flexmoe options.slots=6 options.interval=5 options.policy=laer",
     .what = MOVES | REPLICAS | FROM_4, .nodes = 2}, /* swaps inside a node */
    {"system=flexmoe options.slots=5 options.interval=5 options.moves=exposed",
     .what = MOVES | REPLICAS | FROM_2},
    /* Whole experts in host memory, from where they move. */
    {"system=flexmoe options.slots=5 options.interval=5 options.offload-optimizer=yes",
     .what = MOVES | REPLICAS | OFFLOADS | FROM_2},
    {"system=flexmoe options.slots=5 options.interval=5 options.moves=exposed "
     "options.offload-optimizer=yes",
     .what = MOVES | REPLICAS | OFFLOADS | FROM_2},
    {"system=swiftmoe options.capacity-factor=0", .what = MOVES | REPLICAS | GATHERS},
    {"system=swiftmoe options.capacity-factor=64 options.slots=all",
     .what = MOVES | REPLICAS | GATHERS},
    {"system=swiftmoe options.capacity-factor=0 options.offload-optimizer=yes",
     .what = MOVES | REPLICAS | GATHERS | OFFLOADS},
    {"system=laer options.slots=5 options.rematerialise=no options.prefetch=2",
     .what = COPIES | MOVES | FROM_2},
    {"system=laer options.slots=5 options.rematerialise=yes",
     .what = COPIES | REFETCHES | MOVES | FROM_2},
    {"system=eplb options.interval=5", .what = MOVES | REPLICAS},
    {"system=eplb options.interval=5 options.dispatch=nearest options.replicas=all",
     .what = MOVES | REPLICAS},
    {"system=eplb options.interval=5 options.moves=asynchronous options.replicas=16",
     .what = MOVES | REPLICAS | FROM_4},
    {"system=llep options.smallest-gemm=1 options.threshold=1", .what = LATE},
    /* Tokens once per node and rank, of experts with copies among whom routes are split, too. */
    {"system=deepep exchange-degree=4", .chunks = 4},
    {"system=moetuner options.window=5 options.interval=5 options.solver=search",
     .what = MOVES | FROM_2},
    {"system=hiermoe options.interval=5", .what = MOVES | WIDE | FROM_2},
    /* Groups in groups, of whole nodes, several or parts of one. */
    {"system=hiermoe options.interval=5 options.hierarchy=4:2 options.depth=3",
     .what = MOVES | WIDE | FROM_4},
    {"system=hiermoe options.interval=0 options.hierarchy=4:2 options.depth=3 exchange-degree=2",
     .what = FROM_4, .chunks = 2},
    {"system=hiermoe options.interval=0 options.hierarchy=8:4:2 options.depth=4", .what = FROM_8},
    {"system=llep exchange=deduplicated exchange-degree=2 options.smallest-gemm=1 "
     "options.threshold=1",
     .what = LATE | FROM_4, .chunks = 2, .nodes = 2},
    {"system=lp", .what = REPLICAS | FROM_2},
    {"system=lp options.interval=5", .what = MOVES | REPLICAS | WIDE | FROM_4},
    {"system=moonep", .what = LATE},
    {"system=nodewise options.cover=all options.ahead=all options.chunks=1",
     .what = COPIES | MAY_BE_LATE | REFETCHES | FROM_4, .nodes = 2},
    {"system=nodewise options.cover=2 options.chunks=2", .what = COPIES | MAY_BE_LATE | FROM_4,
     .chunks = 2, .nodes = 4},
    {"system=nodewise options.cover=0 options.even=no options.chunks=3", .what = MAY_BE_LATE,
     .chunks = 3},
    {"system=nodewise options.cover=3 options.ahead=1 options.chunks=8",
     .what = COPIES | MAY_BE_LATE | REFETCHES | FROM_4, .chunks = 8, .nodes = 2},
    {"system=nodewise options.cover=3 options.rematerialise=yes options.chunks=1",
     .what = COPIES | MAY_BE_LATE | REFETCHES | FROM_4, .nodes = 2},
    {"system=harmoeny options.least=1", .what = LATE | FROM_2},
    /* Copies stay in a node. */
    {"system=ultraep", .what = LATE | REFETCHES | FROM_2, .nodes = 1},
    {"system=ultraep options.redundant=3", .what = LATE | REFETCHES | FROM_4, .nodes = 2},
    {"system=hetumoe options.capacity-factor=16", .what = PADDED | WIDE | FROM_4,
     .nodes = 2}, /* through leaders */
    {"system=tutel options.capacity-factor=0 options.trials=2 options.degree=4",
     .what = PADDED | FROM_4, .chunks = 4, .nodes = 2}, /* flat, and in two levels */
    {"system=tutel options.capacity-factor=0 options.r=0",
     .what = COPIES | REFETCHES | PADDED | FROM_2},
    {"system=free-balance", .what = LATE},
    /* 2 experts on more ranks, each cut into r shards: replicas of these where ranks are left. */
    {"system=tutel options.capacity-factor=0 options.r=2 options.degree=1",
     .what = PADDED | NARROW | FROM_4 | UP_TO_4},
    {"system=tutel options.capacity-factor=0 options.r=2 options.degree=1",
     .what = REPLICAS | PADDED | NARROW | FROM_8},
    {"system=tutel options.capacity-factor=0 options.r=4 options.degree=4",
     .what = PADDED | NARROW | FROM_8, .chunks = 4},
    /* Experts cut into shards: more than ranks, fewer, and as many; with copies of single shards,
     * moves, slices of them, products for permuting, and survivors that share weights. */
    {"system=ep expert-shards=2", .what = 0},
    {"system=ep expert-shards=2", .what = REPLICAS | NARROW | FROM_8},
    {"system=ep expert-shards=4", .what = NARROW | FROM_8},
    {"system=fssdp expert-shards=2 options.memory=4 options.overlap=2 options.rematerialise=yes "
     "options.reshard-interval=5",
     .what = COPIES | MAY_BE_LATE | REFETCHES | MOVES | MAY_STAY},
    {"system=laer expert-shards=2 options.slots=10 options.rematerialise=yes",
     .what = COPIES | REFETCHES | MOVES | FROM_2},
    {"system=deepspeed expert-shards=2 options.drop-tokens=no options.dispatch=one-hot",
     .what = PADDED},
};

enum {
    ROWS = sizeof rows / sizeof *rows,
    FSSDP_CASES = 4 * 3 * 2,
    GATE_CASES = ROWS + FSSDP_CASES, /* of a gate, before all but some are left out */
    MAX_CASES = GATES * GATE_CASES
};

/* A case of a gate is named by what follows "system=", without the words "options.". */
static void take_gate(struct exact_case *c, const struct gate *gate) {
    const char *word = c->settings + strlen("system=");
    int length = (int)strcspn(word, " ");
    size_t at = (size_t)snprintf(c->name, sizeof c->name, "%.*s %s", length, word, gate->name);
    c->gate = gate;
    while (*(word += length)) {
        bool is_option = strncmp(word, " options.", 9) == 0;
        word += is_option ? 9 : 1;
        length = (int)strcspn(word, " ");
        at += (size_t)snprintf(c->name + at, sizeof c->name - at, " %.*s", length, word);
    }
}

static int make_row_cases(const struct gate *gate, struct exact_case cases[]) {
    int count = 0;
    for (int r = 0; r < ROWS; r++) {
        unsigned what = rows[r].what;
        int least = what & FROM_8 ? 8 : what & FROM_4 ? 4 : what & FROM_2 ? 2 : 1;
        if (world->ranks < least || ((what & UP_TO_4) && world->ranks > 4))
            continue;
        cases[count] = rows[r];
        take_gate(&cases[count++], gate);
    }
    return count;
}

/* FSSDP in all combinations of memory, overlap and re-materialisation. */
static int make_fssdp_cases(const struct gate *gate, struct exact_case cases[]) {
    static const char *const memory[] = {"0", "1", "4", "all"}, *const overlap[] = {"0", "2",
                                                                                    "all"};
    for (int i = 0; i < FSSDP_CASES; i++) {
        int m = i / 6, t = i / 2 % 3, again = i % 2;
        bool copies = m > 0 && t > 0;
        /* Where every expert is hot, owners stay where they are. */
        cases[i] =
            (struct exact_case){.what = MAY_BE_LATE | (t < 2 ? MOVES : 0) | (copies ? COPIES : 0) |
                                        (copies && again ? REFETCHES : 0)};
        snprintf(cases[i].settings, sizeof cases[i].settings,
                 "system=fssdp options.memory=%s options.overlap=%s options.rematerialise=%s "
                 "options.reshard-interval=5",
                 memory[m], overlap[t], again ? "yes" : "no");
        take_gate(&cases[i], gate);
    }
    return FSSDP_CASES;
}

/* Cases take turns on one, two and four nodes, each gate's from another one on. */
static void declare_nodes(struct exact_case cases[], int count, int turn) {
    int choices = world->ranks < 4 ? world->ranks : 3;
    for (int i = 0; i < count; i++) {
        size_t at = strlen(cases[i].name);
        if (!cases[i].nodes)
            cases[i].nodes = 1 << (i + turn) % choices;
        snprintf(cases[i].name + at, sizeof cases[i].name - at, " nodes=%d", cases[i].nodes);
    }
}

static int mechanisms_of(const struct exact_case *c) {
    return __builtin_popcount(c->what & ACTS & ~OFFLOADS) + (c->group_size > 0);
}

static bool have_one_system(const struct exact_case *a, const struct exact_case *b) {
    size_t length = strcspn(a->settings, " ");
    return strcspn(b->settings, " ") == length && memcmp(a->settings, b->settings, length) == 0;
}

/* Keeps of every system, for all gates, the first case in which most happens, with experts to
 * spare: when a token takes half of all there are, none is hot. */
static int share_one_of_each(struct exact_case cases[], int count) {
    int kept = 0;
    for (int i = 0; i < count; i++) {
        int k = 0;
        while (k < kept && !have_one_system(&cases[k], &cases[i]))
            k++;
        if (k < kept && mechanisms_of(&cases[k]) >= mechanisms_of(&cases[i]))
            continue;
        cases[k] = cases[i];
        cases[k].what |= world->ranks >= 4 ? WIDE : 0; /* slots are for that many */
        kept += k == kept;
    }
    return kept;
}

static int make_gate_cases(const struct gate *gate, struct exact_case cases[GATE_CASES]) {
    int count = make_row_cases(gate, cases);
    return count + make_fssdp_cases(gate, cases + count);
}

/* 8 ranks, which take turns on a few cores, have every case with one of the two gates. */
static int make_cases(struct exact_case cases[MAX_CASES]) {
    static struct exact_case made[GATE_CASES];
    int count = 0;
    for (int g = 0; g < FIRST; g++) {
        int of_gate = make_gate_cases(&gates[g], made);
        declare_nodes(made, of_gate, g);
        for (int i = 0; i < of_gate; i++)
            if (world->ranks < 8 || ((uint64_t)(i + g) + seed) % FIRST == 0)
                cases[count++] = made[i];
    }
    return count;
}

/* One case of every system with all gates, by turns flat and in two levels, on two nodes of two
 * ranks, where neither level is empty. */
static int make_matrix(struct exact_case cases[MAX_CASES]) {
    static struct exact_case one[GATE_CASES];
    int kept = share_one_of_each(one, make_gate_cases(&gates[0], one)), count = 0;
    for (int i = 0; i < kept * GATES; i++) {
        struct exact_case *c = &cases[count++];
        bool levels = ((uint64_t)(i / GATES + i) + seed) % 2;
        *c = one[i / GATES];
        size_t length = strlen(c->settings);
        snprintf(c->settings + length, sizeof c->settings - length, " exchange=%s",
                 levels ? "two-level" : "flat");
        take_gate(c, &gates[i % GATES]);
        c->what |= levels ? MAY_REFUSE : 0;
        c->nodes = levels && !c->nodes ? 2 : c->nodes;
    }
    declare_nodes(cases, count, 1);
    return count;
}

/* An argument such as "*laer*" selects cases; "--matrix" alone or before it has others made. */
int main(int argc, char **argv) {
    if (!join_world())
        return 1;
    static struct exact_case cases[MAX_CASES];
    static struct CMUnitTest tests[MAX_CASES];
    matrix = argc > 1 && strcmp(argv[1], "--matrix") == 0;
    int count = matrix ? make_matrix(cases) : make_cases(cases);
    if (argc > 1 + matrix)
        cmocka_set_test_filter(argv[1 + matrix]);
    for (int i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){cases[i].name, curve_equals_one_rank, NULL, NULL, &cases[i]};
    return leave_world(_cmocka_run_group_tests("exact", tests, (size_t)count, NULL, NULL));
}
