/* Exactness: the loss curve of every system, number of ranks and combination of options equals that
 * of one rank within 1e-4 relative, on one declared node and on several, while its mechanisms
 * really act.  With further gates every system has a turn on four ranks; with the argument
 * --matrix, which takes long, all of them have all, flat and in two levels.
 *
 * Runs under mpirun; all ranks go through the same cases in the same order.  The reference curves
 * are computed by rank 0 alone, whose gates' choices the others take (trainers.h). */
#include "reference/base/random.h"
#include "tests/reference/trainer/mpi/trainers.h"

enum { ITERATIONS = 50, SEQUENCE = 16, BATCH = 8 };
static const double TOLERANCE = 1e-4;

/* Whether experts must have been copied after the gate. */
enum late_copies { MUST_NOT_COPY, MAY_COPY, MUST_COPY };

struct gate {
    const char *name;
    const char *settings[5];
};

/* The first two meet every case.  The others, with more experts per token or another rule, share
 * one case of every system, by turns that begin where the seed says. */
static const struct gate gates[] = {
    {"gshard", {"gate=gshard"}},
    {"switch", {"gate=switch"}},
    {"softmax", {"gate=softmax", "top-k=4", "gate-options.z-loss=0.01"}},
    {"hash", {"gate=hash"}},
    {"beside a shared expert", {"gate=gshard", "shared-experts=1"}},
    {"ktop1", {"gate=ktop1", "top-k=4", "gate-options.balance-over=sequence"}},
    {"gshard random", {"gate=gshard", "gate-options.second=random"}},
    {"dts", {"gate=dts", "top-k=4", "gate-options.last-temperature=0.5", "gate-options.anneal=40"}},
    /* The alignment loss has an edge where an expert's probability passes the last choice's: which
     * side rounding is on decides about a gradient.  Its own tests have it. */
    {"sam", {"gate=sam", "top-k=2", "gate-options.groups=4", "gate-options.alignment-weight=0"}},
    {"base", {"gate=base"}},
    {"expert choice", {"gate=expertchoice", "top-k=3"}},
    {"sigmoid",
     {"gate=sigmoid", "top-k=4", "gate-options.groups=2", "gate-options.bias-rate=0.01"}},
};
enum { GATES = sizeof gates / sizeof *gates, SHARING = 2 };

struct exact_case {
    char name[160];
    const struct gate *gate; /* one of `gates` */
    const char *settings[11];
    bool moves;     /* homes must have changed, */
    bool may_stay;  /* if the draw makes them: with shards apart loads may be even enough */
    bool copies;    /* copies must have been fetched before the gate */
    bool refetches; /* copies must have been fetched again for backward */
    bool replicas;  /* tied replicas must have been updated, or sums shared between holders */
    bool gathers;   /* experts must have been put together from slices after steps */
    bool offloads;  /* updates must have been made in host memory */
    bool padded;    /* rows without a token must have travelled */
    int group_size; /* of the pipelined exchange that must have been used; 0: another */
    int chunks;     /* that rows must have been cut into; 0: none */
    enum late_copies late;
    int least_ranks; /* below which it can't act so, and is left out */
    int most_ranks;  /* above which it acts otherwise; 0: no such number */
    bool wide;       /* 16 experts: 8 on as many ranks are balanced by nothing but copies */
    bool narrow;     /* 2 experts, on more ranks */
    int nodes;       /* declared; 0: what is its turn */
    bool may_refuse; /* its system has rows travel in its own way */
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

/* What 8 ranks do, which take turns on a few cores, and the many cases of the matrix show in fewer
 * iterations. */
static bool matrix;
static int iterations_of(const struct mp_comm *comm) {
    return comm->ranks < 8 && !matrix ? ITERATIONS : ITERATIONS / 2;
}

static void run(const struct exact_case *c, struct mp_comm *comm, struct outcome *outcome) {
    char nodes[32];
    const char *settings[sizeof c->settings / sizeof *c->settings + 9] = {c->narrow ? "experts=2"
                                                                          : c->wide ? "experts=16"
                                                                                    : "experts=8",
                                                                          "ranks-per-node=all",
                                                                          nodes};
    int count = 3;
    snprintf(nodes, sizeof nodes, "nodes=%d", c->nodes);
    for (int i = 0; c->gate->settings[i]; i++)
        settings[count++] = c->gate->settings[i];
    for (int i = 0; c->settings[i]; i++)
        settings[count++] = c->settings[i];
    struct mp_error refusal;
    struct mp_trainer *trainer = try_trainer(comm, NULL, settings, &refusal);
    outcome->refused = c->may_refuse && refusal.code == MP_EREFUSED;
    if (outcome->refused) {
        if (comm->rank == 0)
            print_message("  refused: %s\n", refusal.text);
        return;
    }
    must(refusal.code, &refusal);
    assert_int_equal(comm->ranks_per_node, comm->ranks / (c->nodes ? c->nodes : 1));
    int sequences = BATCH / comm->ranks, iterations = iterations_of(comm);
    int32_t token[BATCH * SEQUENCE], target[BATCH * SEQUENCE];
    for (int i = 0; i < iterations; i++) {
        for (int b = 0; b < sequences; b++)
            make_tokens(i, comm->rank * sequences + b, token + b * SEQUENCE, target + b * SEQUENCE);
        struct mp_trainer_result result;
        struct mp_error error = {0};
        must(mp_trainer_step_on(trainer, token, target, &result, &error), &error);
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

static const struct curve *reference(const struct gate *gate, bool wide, bool narrow) {
    static struct curve curves[GATES][3];
    struct curve *curve = &curves[gate - gates][narrow ? 2 : wide];
    struct exact_case c = {.name = "reference",
                           .gate = gate,
                           .settings = {"system=ep"},
                           .wide = wide,
                           .narrow = narrow};
    if (curve->known)
        return curve;
    if (world->rank == 0) {
        struct mp_comm *self;
        struct outcome outcome = {0};
        assert_int_equal(mp_comm_self_create(&self, NULL), MP_OK);
        noted = &curve->choices;
        run(&c, self, &outcome);
        noted = NULL;
        mp_comm_destroy(self);
        memcpy(curve->loss, outcome.loss, sizeof outcome.loss);
    }
    assert_int_equal(mp_comm_broadcast(world, curve->loss, sizeof curve->loss, 0, NULL), MP_OK);
    share_choices(&curve->choices);
    curve->known = true;
    return curve;
}

/* The system has done what it is there for. */
static void mechanism_has_acted(const struct exact_case *c, const struct outcome *outcome) {
    const struct mp_trainer_totals *totals = &outcome->totals;
    assert_int_equal(totals->copies[MP_STAGE_BEFORE_GATE] > 0, c->copies);
    assert_int_equal(totals->copies[MP_STAGE_BACKWARD_PREFETCH] > 0, c->refetches);
    assert_int_equal(totals->copies[MP_STAGE_AFTER_STEP] > 0, c->gathers);
    if (!c->may_stay)
        assert_int_equal(totals->moves > 0, c->moves);
    assert_int_equal(totals->replicas > 0, c->replicas);
    assert_int_equal(outcome->padding > 0, c->padded);
    assert_int_equal(outcome->host_bytes > 0, c->offloads);
    assert_int_equal(outcome->steps, c->group_size ? world->ranks / c->group_size
                                     : c->chunks   ? c->chunks
                                                   : 1);
    if (c->late != MAY_COPY)
        assert_int_equal(totals->copies[MP_STAGE_AFTER_GATE] > 0, c->late == MUST_COPY);
}

/* Not the last loss, which the text's last change of domains may have raised. */
static double lowest(const double loss[ITERATIONS]) {
    double least = loss[0];
    for (int i = 1; i < ITERATIONS; i++)
        least = fmin(least, loss[i]);
    return least;
}

static void curve_equals_one_rank(void **state) {
    const struct exact_case *c = *state;
    const struct curve *curve = reference(c->gate, c->wide, c->narrow);
    const double *expected = curve->loss;
    struct outcome outcome = {0};
    followed = &curve->choices;
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
    assert_true(lowest(expected) < 0.9 * expected[0]); /* it learns, so something happens */
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
    if (world->ranks > 1 && c->gate - gates < SHARING && !c->wide)
        mechanism_has_acted(c, &outcome);
}

/* Cases that differ in their settings only; `what` names them. */
struct row {
    const char *system;
    const char *options[8];
    struct exact_case acts;
};

static const struct row rows[] = {
    {.system = "ep"},
    {.system = "skeleton"},
    {.system = "tamoe"},
    {.system = "skeleton", .options = {"options.owners=cyclic"}},
    /* Shadows under every policy; without drops the released one has none, which is its defect. */
    {"fastermoe", {"options.smart-schedule=no"}, {.late = MUST_COPY}},
    {"fastermoe",
     {"options.policy=paper-printed", "options.group-size=1"},
     {.late = MUST_COPY, .group_size = 1}},
    {"fastermoe",
     {"options.policy=released-fixed", "options.group-size=2"},
     {.late = MUST_COPY, .group_size = 2, .least_ranks = 2}},
    {"fastermoe",
     {"options.policy=released", "options.group-size=1"},
     {.late = MUST_NOT_COPY, .group_size = 1}},
    /* Groups of two ranks, which are replicas of each other's experts and shadow by themselves. */
    {"fastermoe",
     {"options.group-size=1"},
     {.replicas = true, .late = MAY_COPY, .group_size = 1, .least_ranks = 4, .narrow = true}},
    {"smartmoe",
     {"options.smart-schedule=no", "options.shadows=0", "options.interval=5"},
     {.replicas = true, .least_ranks = 4, .narrow = true}},
    {"frugal",
     {"options.overlap=all", "options.reshard-interval=5"},
     {.copies = true, .moves = true, .late = MAY_COPY}},
    {"ep", {"options.expert-parallel=1"}, {.replicas = true}},
    /* Room for every route, padded and not, and replicas of all experts. */
    {"deepspeed", {"options.capacity-factor=16"}, {.padded = true}},
    {"deepspeed", {"options.drop-tokens=no"}, {.padded = true}},
    {"deepspeed",
     {"options.drop-tokens=no", "options.dispatch=one-hot", "options.expert-parallel=1"},
     {.padded = true, .replicas = true}},
    {.system = "deepspeed", .options = {"options.capacity-factor=16", "options.padded=no"}},
    {"deepspeed",
     {"options.capacity-factor=16", "options.expert-parallel=1"},
     {.padded = true, .replicas = true}},
    {"deepspeed",
     {"options.drop-tokens=no", "options.padded=no", "options.expert-parallel=2"},
     {.replicas = true, .least_ranks = 4}},
    /* ZeRO-1 over all replicas, over two of each, and of experts that have none. */
    {"deepspeed",
     {"options.drop-tokens=no", "options.zero=1", "options.expert-parallel=1"},
     {.padded = true, .replicas = true, .gathers = true, .least_ranks = 2}},
    {"deepspeed",
     {"options.drop-tokens=no", "options.zero=1", "options.expert-parallel=1",
      "options.multi-rank-bucket-allreduce=no", "options.offload-optimizer=yes"},
     {.padded = true, .gathers = true, .offloads = true, .least_ranks = 2}},
    {"deepspeed",
     {"options.drop-tokens=no", "options.zero=1", "options.expert-parallel=2", "options.padded=no",
      "options.multi-rank-bucket-allreduce=no"},
     {.gathers = true, .least_ranks = 4}},
    {"deepspeed",
     {"options.drop-tokens=no", "options.zero=1", "options.offload-optimizer=yes"},
     {.padded = true, .offloads = true}},
    {"smartmoe",
     {"options.interval=5", "options.group-size=1"},
     {.moves = true, .late = MUST_COPY, .group_size = 1, .wide = true}},
    {"smartmoe",
     {"options.interval=5", "options.solver=dynamic-programming", "options.smart-schedule=no",
      "options.shadows=0"},
     {.moves = true, .wide = true}},
    {"smartmoe",
     {"options.interval=5", "options.solver=hybrid", "options.group-size=1", "options.shadows=0"},
     {.moves = true, .group_size = 1, .wide = true}},
    {"flexmoe",
     {"options.slots=5", "options.interval=5"},
     {.replicas = true, .moves = true, .least_ranks = 2}},
    {"flexmoe",
     {"options.slots=6", "options.interval=5", "options.policy=laer"},
     {.replicas = true, .moves = true, .least_ranks = 4, .nodes = 2}}, /* swaps inside a node */
    {"flexmoe",
     {"options.slots=5", "options.interval=5", "options.moves=exposed"},
     {.replicas = true, .moves = true, .least_ranks = 2}},
    /* Whole experts in host memory, from where they move. */
    {"flexmoe",
     {"options.slots=5", "options.interval=5", "options.offload-optimizer=yes"},
     {.replicas = true, .moves = true, .offloads = true, .least_ranks = 2}},
    {"flexmoe",
     {"options.slots=5", "options.interval=5", "options.moves=exposed",
      "options.offload-optimizer=yes"},
     {.replicas = true, .moves = true, .offloads = true, .least_ranks = 2}},
    {"swiftmoe", {"options.capacity-factor=0"}, {.replicas = true, .moves = true, .gathers = true}},
    {"swiftmoe",
     {"options.capacity-factor=64", "options.slots=all"},
     {.replicas = true, .moves = true, .gathers = true}},
    {"swiftmoe",
     {"options.capacity-factor=0", "options.offload-optimizer=yes"},
     {.replicas = true, .moves = true, .gathers = true, .offloads = true}},
    {"laer",
     {"options.slots=5", "options.rematerialise=no", "options.prefetch=2"},
     {.copies = true, .moves = true, .least_ranks = 2}},
    {"laer",
     {"options.slots=5", "options.rematerialise=yes"},
     {.copies = true, .refetches = true, .moves = true, .least_ranks = 2}},
    {"eplb", {"options.interval=5"}, {.replicas = true, .moves = true}},
    {"eplb",
     {"options.interval=5", "options.dispatch=nearest", "options.replicas=all"},
     {.replicas = true, .moves = true}},
    {"eplb",
     {"options.interval=5", "options.moves=asynchronous", "options.replicas=16"},
     {.replicas = true, .moves = true, .least_ranks = 4}},
    {"llep", {"options.smallest-gemm=1", "options.threshold=1"}, {.late = MUST_COPY}},
    /* Tokens once per node and rank, of experts with copies among whom routes are split, too. */
    {"deepep", {"exchange-degree=4"}, {.chunks = 4}},
    {"moetuner",
     {"options.window=5", "options.interval=5", "options.solver=search"},
     {.moves = true, .least_ranks = 2}},
    {"hiermoe", {"options.interval=5"}, {.moves = true, .wide = true, .least_ranks = 2}},
    /* Groups in groups, of whole nodes, several or parts of one. */
    {"hiermoe",
     {"options.interval=5", "options.hierarchy=4:2", "options.depth=3"},
     {.moves = true, .wide = true, .least_ranks = 4}},
    {"hiermoe",
     {"options.interval=0", "options.hierarchy=4:2", "options.depth=3", "exchange-degree=2"},
     {.chunks = 2, .least_ranks = 4}},
    {"hiermoe",
     {"options.interval=0", "options.hierarchy=8:4:2", "options.depth=4"},
     {.least_ranks = 8}},
    {"llep",
     {"exchange=deduplicated", "exchange-degree=2", "options.smallest-gemm=1",
      "options.threshold=1"},
     {.late = MUST_COPY, .chunks = 2, .least_ranks = 4, .nodes = 2}},
    {.system = "lp", .acts = {.replicas = true, .least_ranks = 2}},
    {"lp",
     {"options.interval=5"},
     {.replicas = true, .moves = true, .wide = true, .least_ranks = 4}},
    {.system = "moonep", .acts = {.late = MUST_COPY}},
    {"nodewise",
     {"options.cover=all", "options.chunks=1"},
     {.copies = true, .late = MAY_COPY, .least_ranks = 4, .nodes = 2}},
    {"nodewise",
     {"options.cover=2", "options.chunks=2"},
     {.copies = true, .late = MAY_COPY, .chunks = 2, .least_ranks = 4, .nodes = 4}},
    {"nodewise",
     {"options.cover=0", "options.even=no", "options.chunks=3"},
     {.late = MAY_COPY, .chunks = 3}},
    {"nodewise",
     {"options.cover=3", "options.chunks=8"},
     {.copies = true, .late = MAY_COPY, .chunks = 8, .least_ranks = 4, .nodes = 2}},
    {"harmoeny", {"options.least=1"}, {.late = MUST_COPY, .least_ranks = 2}},
    /* Copies stay in a node. */
    {.system = "ultraep",
     .acts = {.late = MUST_COPY, .refetches = true, .least_ranks = 2, .nodes = 1}},
    {"ultraep",
     {"options.redundant=3"},
     {.late = MUST_COPY, .refetches = true, .least_ranks = 4, .nodes = 2}},
    {"hetumoe",
     {"options.capacity-factor=16"},
     {.padded = true, .wide = true, .least_ranks = 4, .nodes = 2}}, /* through leaders */
    {"tutel",
     {"options.capacity-factor=0", "options.trials=2", "options.degree=4"},
     {.padded = true, .chunks = 4, .least_ranks = 4, .nodes = 2}}, /* flat, and in two levels */
    {"tutel",
     {"options.capacity-factor=0", "options.r=0"},
     {.padded = true, .copies = true, .refetches = true, .least_ranks = 2}},
    {.system = "free-balance", .acts = {.late = MUST_COPY}},
    /* 2 experts on more ranks, each cut into r shards: replicas of these where ranks are left. */
    {"tutel",
     {"options.capacity-factor=0", "options.r=2", "options.degree=1"},
     {.padded = true, .least_ranks = 4, .most_ranks = 4, .narrow = true}},
    {"tutel",
     {"options.capacity-factor=0", "options.r=2", "options.degree=1"},
     {.padded = true, .replicas = true, .least_ranks = 8, .narrow = true}},
    {"tutel",
     {"options.capacity-factor=0", "options.r=4", "options.degree=4"},
     {.padded = true, .chunks = 4, .least_ranks = 8, .narrow = true}},
    /* Experts cut into shards: more than ranks, fewer, and as many; with copies of single shards,
     * moves, slices of them, products for permuting, and survivors that share weights. */
    {.system = "ep", .options = {"expert-shards=2"}},
    {"ep", {"expert-shards=2"}, {.replicas = true, .least_ranks = 8, .narrow = true}},
    {.system = "ep", .options = {"expert-shards=4"}, .acts = {.least_ranks = 8, .narrow = true}},
    {"fssdp",
     {"expert-shards=2", "options.memory=4", "options.overlap=2", "options.rematerialise=yes",
      "options.reshard-interval=5"},
     {.copies = true, .refetches = true, .moves = true, .may_stay = true, .late = MAY_COPY}},
    {"laer",
     {"expert-shards=2", "options.slots=10", "options.rematerialise=yes"},
     {.copies = true, .refetches = true, .moves = true, .least_ranks = 2}},
    {"deepspeed",
     {"expert-shards=2", "options.drop-tokens=no", "options.dispatch=one-hot"},
     {.padded = true}},
};

static const char *const exchanges[] = {"exchange=flat", "exchange=two-level"};
enum {
    ROWS = sizeof rows / sizeof *rows,
    FSSDP_CASES = 4 * 3 * 2,
    GATE_CASES = ROWS + FSSDP_CASES, /* of a gate, before all but some are left out */
    EXCHANGES = sizeof exchanges / sizeof *exchanges,
    MAX_CASES = GATES * EXCHANGES * GATE_CASES
};

static void name_case(struct exact_case *c, const char *system, const char *const options[]) {
    size_t at = (size_t)snprintf(c->name, sizeof c->name, "%s %s", system, c->gate->name);
    for (int i = 0; options[i] && at < sizeof c->name; i++)
        at += (size_t)snprintf(c->name + at, sizeof c->name - at, " %s",
                               options[i] + strlen("options."));
}

static int make_row_cases(const struct gate *gate, struct exact_case cases[]) {
    int count = 0;
    for (int r = 0; r < ROWS; r++) {
        struct exact_case *c = &cases[count];
        static char system[ROWS][32];
        int most = rows[r].acts.most_ranks;
        if (world->ranks < rows[r].acts.least_ranks || (most && world->ranks > most))
            continue;
        *c = rows[r].acts;
        c->gate = gate;
        snprintf(system[r], sizeof system[r], "system=%s", rows[r].system);
        c->settings[0] = system[r];
        for (int i = 0; rows[r].options[i]; i++)
            c->settings[i + 1] = rows[r].options[i];
        name_case(c, rows[r].system, rows[r].options);
        count++;
    }
    return count;
}

/* FSSDP in all combinations of memory, overlap and re-materialisation. */
static int make_fssdp_cases(const struct gate *gate, struct exact_case cases[]) {
    static const char *const memory[] = {"options.memory=0", "options.memory=1", "options.memory=4",
                                         "options.memory=all"};
    static const char *const overlap[] = {"options.overlap=0", "options.overlap=2",
                                          "options.overlap=all"};
    static const char *const again[] = {"options.rematerialise=no", "options.rematerialise=yes"};
    int count = 0;
    for (int m = 0; m < 4; m++)
        for (int t = 0; t < 3; t++)
            for (int r = 0; r < 2; r++) {
                struct exact_case *c = &cases[count++];
                bool copies = m > 0 && t > 0;
                *c = (struct exact_case){
                    .gate = gate,
                    .settings = {"system=fssdp", memory[m], overlap[t], again[r],
                                 "options.reshard-interval=5"},
                    .copies = copies,
                    .refetches = copies && r == 1,
                    /* Where every expert is hot, owners stay where they are. */
                    .moves = t < 2,
                    .late = MAY_COPY,
                };
                name_case(c, "fssdp", c->settings + 1);
            }
    return count;
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
    return c->moves + c->copies + c->refetches + c->replicas + c->gathers + c->padded +
           (c->group_size > 0) + (c->late == MUST_COPY);
}

/* Keeps of every system, for one of the sharing gates, the first case in which most happens, with
 * experts to spare: when a token takes half of all there are, none is hot. */
static int share_one_of_each(struct exact_case cases[], int count) {
    int kept = 0;
    for (int i = 0; i < count; i++) {
        int k = 0;
        while (k < kept && strcmp(cases[k].settings[0], cases[i].settings[0]) != 0)
            k++;
        if (k < kept && mechanisms_of(&cases[k]) >= mechanisms_of(&cases[i]))
            continue;
        cases[k] = cases[i];
        cases[k].wide |= world->ranks >= 4; /* slots are for that many */
        kept += k == kept;
    }
    return kept;
}

static void take_gate(struct exact_case *c, const struct gate *gate) {
    c->gate = gate;
    name_case(c, c->settings[0] + strlen("system="), c->settings + 1);
}

static int make_gate_cases(const struct gate *gate, struct exact_case cases[GATE_CASES]) {
    int count = make_row_cases(gate, cases);
    return count + make_fssdp_cases(gate, cases + count);
}

static int make_cases(struct exact_case cases[MAX_CASES]) {
    int count = 0;
    for (int g = 0; g <= (world->ranks == 4 ? SHARING : SHARING - 1); g++) {
        struct exact_case *own = &cases[count];
        int made = make_gate_cases(&gates[g], own);
        if (g == SHARING)
            made = share_one_of_each(own, made);
        for (int k = 0; g == SHARING && k < made; k++)
            take_gate(&own[k], &gates[SHARING + ((uint64_t)k + seed) % (GATES - SHARING)]);
        declare_nodes(own, made, g);
        count += made;
    }
    return count;
}

/* One case of every system, with all gates and exchanges. */
static int make_matrix(struct exact_case cases[MAX_CASES]) {
    static struct exact_case one[GATE_CASES];
    int kept = share_one_of_each(one, make_gate_cases(&gates[0], one)), count = 0;
    for (int k = 0; k < kept; k++)
        for (int g = 0; g < GATES; g++)
            for (int e = 0; e < EXCHANGES; e++) {
                struct exact_case *c = &cases[count++];
                int last = 0;
                *c = one[k];
                while (c->settings[last])
                    last++;
                take_gate(c, &gates[g]);
                c->settings[last] = exchanges[e];
                c->may_refuse = e > 0;
                size_t at = strlen(c->name);
                snprintf(c->name + at, sizeof c->name - at, " %s", exchanges[e]);
            }
    declare_nodes(cases, count, 1);
    return count;
}

/* An argument such as "*laer*" selects cases; "--matrix" alone or before it has others made. */
int main(int argc, char **argv) {
    struct mp_error error = {0};
    if (mp_comm_mpi_create(NULL, &world, &error)) {
        print_error("%s\n", error.text);
        return 1;
    }
    if (world->rank == 0)
        seed = test_seed();
    must(mp_comm_broadcast(world, &seed, sizeof seed, 0, &error), &error);
    static struct exact_case cases[MAX_CASES];
    static struct CMUnitTest tests[MAX_CASES];
    matrix = argc > 1 && strcmp(argv[1], "--matrix") == 0;
    int count = matrix ? make_matrix(cases) : make_cases(cases);
    if (argc > 1 + matrix)
        cmocka_set_test_filter(argv[1 + matrix]);
    for (int i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){cases[i].name, curve_equals_one_rank, NULL, NULL, &cases[i]};
    int failed = _cmocka_run_group_tests("exact", tests, (size_t)count, NULL, NULL);
    mp_comm_destroy(world);
    return failed != 0;
}
