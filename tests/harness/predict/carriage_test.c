/* What plans move beside rows: every receiver gets everything once, and no port carries it twice.
 */
#include "tests/harness/predict/predictor_support.h"

/* Bytes that ranks receive are counted for spans alone. */
static void no_span(UNUSED void *context, UNUSED int rank, UNUSED enum mp_predict_stream stream,
                    UNUSED const struct mp_span *span) {}

struct bench {
    struct test_case test;
    struct test_machine machine;
    struct mp_predictor *predictor;
    struct mp_carrier *carrier; /* of the predictor, as are these: */
    struct mp_plan *plan;
    struct mp_placement *home;
    struct mp_carriage *gradient_of; /* of layer 0, by MP_SUM_COPIES ... */
    double parameters, gradient;     /* bytes of an expert */
};

/* Of a case that is there. */
static void take_predictor(struct bench *bench) {
    bench->predictor = test_predictor(&bench->test, &(struct mp_predict_sink){.span = no_span});
    bench->carrier = &bench->predictor->carrier;
    bench->plan = bench->predictor->planner.plan;
    bench->home = &bench->predictor->planner.home[0];
    bench->gradient_of = bench->carrier->layer[0].gradient;
    bench->parameters = bench->predictor->costs->sizes.expert;
    bench->gradient = bench->predictor->costs->sizes.expert_gradient;
}

static void create(struct bench *bench, uint64_t *random, int experts) {
    const int nodes = test_random_int(random, 1, 4);
    bench->machine = test_machine_of(nodes, test_random_int(random, 2, 5));
    bench->test = test_make(&bench->machine, "fssdp", 1, experts, 1);
    bench->test.options.gradient_bytes = 4;
    take_predictor(bench);
    assert_close(bench->gradient, 2 * bench->parameters, 0);
}

static void destroy(struct bench *bench) {
    mp_predictor_destroy(bench->predictor);
    test_case_destroy(&bench->test);
}

TEST_END(bench, struct bench, destroy(it))

/* Bytes that a carriage brings to all ranks. */
static double all_received(const struct bench *bench, const struct mp_carriage *carriage) {
    double received = 0;
    for (int r = 0; carriage->any && r < bench->predictor->ranks; r++)
        received += carriage->received[r];
    return received;
}

static void begin(struct bench *bench) {
    assert_works(mp_plan_begin(bench->plan, 0, 0, bench->home, &error));
}

/* Until copies are there that the gate asks for. */
static void begin_under(struct bench *bench, enum mp_optimizer_split split) {
    bench->predictor->planner.policy.optimizer = split;
    begin(bench);
    assert_works(mp_plan_dispatch_begin(bench->plan, &error));
}

/* A plan of random copies, in one stage; copies[r]: how many rank r gets. */
static int random_plan(struct bench *bench, uint64_t *random, enum mp_stage stage, int copies[]) {
    struct mp_plan *plan = bench->plan;
    int all = 0, ranks = bench->predictor->ranks;
    memset(copies, 0, (size_t)ranks * sizeof *copies);
    begin(bench);
    for (int tries = 0; tries < 3 * ranks; tries++) {
        int expert = test_random_int(random, 0, plan->experts - 1);
        int rank = test_random_int(random, 0, ranks - 1);
        if (mp_placement_holds(&plan->during, expert, rank))
            continue;
        assert_works(mp_plan_add_copy(plan, expert, rank, stage, &error));
        copies[rank]++;
        all++;
    }
    return all;
}

TEST_RANDOM_TURNS(copies_arrive_once, 100, i) {
    AUTO(bench) struct bench bench;
    int copies[64];
    create(&bench, random, test_random_int(random, 1, 40));
    struct mp_carriage *fetch = &bench.carrier->fetch;
    struct mp_carriage *reduce = &bench.gradient_of[MP_SUM_COPIES];
    enum mp_stage stage = i % 2 ? MP_STAGE_BEFORE_GATE : MP_STAGE_AFTER_GATE;
    int all = random_plan(&bench, random, stage, copies);
    double sent[64], received[64], back = 0;
    mp_carrier_fetch(bench.carrier, stage, true, fetch);
    assert_int_equal(fetch->any, all > 0);
    mp_traffic_totals(bench.carrier->traffic, sent, received);
    for (int r = 0; fetch->any && r < bench.predictor->ranks; r++) {
        assert_close(received[r], copies[r] * bench.parameters, 1e-6);
        assert_close(fetch->received[r], received[r], 0);
        assert_true(fetch->seconds[r] >= 0 && (fetch->seconds[r] > 0) == (fetch->alone[r] > 0));
    }
    assert_close(bench.carrier->bytes[stage], all * bench.parameters, 1e-9);
    mp_carrier_gradients(bench.carrier, 0, true);
    assert_int_equal(reduce->any, all > 0);
    for (int r = 0; reduce->any && r < bench.predictor->ranks; r++) {
        assert_close(reduce->received[r], 2 * sent[r], 1e-6); /* the same ways back */
        back += reduce->received[r];
    }
    assert_close(back, all * bench.gradient, 1e-6);
    assert_false(bench.gradient_of[MP_SHARE_SUMS].any);
    assert_false(bench.gradient_of[MP_SEND_SLICES].any);
}

/* A copy goes from rank 0 to 1 before the gate, and two from ranks 1 and 3 to 2 after it. */
static void fetch_some(struct bench *bench, bool rematerialise, bool first, bool late) {
    begin(bench);
    bench->predictor->planner.policy.rematerialise = rematerialise;
    if (first)
        assert_works(mp_plan_add_copy(bench->plan, 0, 1, MP_STAGE_BEFORE_GATE, &error));
    for (int expert = 1; late && expert < 4; expert += 2)
        assert_works(mp_plan_add_copy(bench->plan, expert, 2, MP_STAGE_AFTER_GATE, &error));
    mp_carrier_fetch(bench->carrier, MP_STAGE_BEFORE_GATE, true, &bench->carrier->fetch);
    mp_carrier_fetch(bench->carrier, MP_STAGE_AFTER_GATE, true, &bench->carrier->late_fetch);
    mp_carrier_gradients(bench->carrier, 0, true);
}

/* One after the other.  Two copies take rank 2 twice as long as one, and who sends it one is busy
 * with that half of the time. */
TEST(backward_fetches_both_again) {
    static const double first_copies[4] = {1, 1, 0, 0}, late_copies[4] = {0, 2, 2, 2},
                        late_alone[4] = {0, 1, 2, 1};
    AUTO(bench) struct bench bench;
    bench.machine = GOOD_MACHINE;
    bench.machine.nodes = 1;
    bench.machine.latency = 0;
    bench.test = test_make(&bench.machine, "fssdp", 1, 4, 1);
    take_predictor(&bench);
    mp_placement_set_owners(bench.home, (const int32_t[]){0, 1, 2, 3});
    const struct mp_carriage *prefetch = &bench.carrier->layer[0].prefetch;
    const double copy = bench.parameters / bench.machine.bandwidth;
    for (int which = 1; which < 4; which++) {
        const bool first = which & 1, late = which & 2;
        fetch_some(&bench, true, first, late);
        assert_true(prefetch->any);
        for (int r = 0; r < 4; r++) {
            const double seconds = copy * (first * first_copies[r] + late * late_copies[r]);
            assert_all_close(
                1e-5, prefetch->seconds[r], seconds, prefetch->others[r], seconds,
                prefetch->alone[r], copy * (first * first_copies[r] + late * late_alone[r]),
                prefetch->received[r], bench.parameters * (first * (r == 1) + late * 2 * (r == 2)));
        }
    }
    fetch_some(&bench, true, false, false);
    assert_false(prefetch->any);
    fetch_some(&bench, false, true, true);
    assert_false(prefetch->any);
}

/* Of copies of copies, those of one expert and rank follow its hops, and the owner sends nothing.
 */
TEST_RANDOM(copies_of_copies_stay_in_their_node) {
    int stayed = 0;
    for (int i = 0; i < 100; i++) {
        AUTO(bench) struct bench bench;
        int copies[64], late = 0;
        create(&bench, random, test_random_int(random, 1, 40));
        random_plan(&bench, random, MP_STAGE_BEFORE_GATE, copies);
        int begin = (int)(test_random(random) % (uint64_t)bench.machine.nodes) *
                    bench.machine.ranks_per_node;
        for (int e = 0; e < bench.plan->experts; e++) {
            int from = mp_placement_next(&bench.plan->during, e, begin);
            int end = begin + bench.machine.ranks_per_node;
            bool near = from >= 0 && from < end && from != bench.plan->during.owner[e];
            for (int to = begin; near && to < end; to++)
                if (!mp_placement_holds(&bench.plan->during, e, to) && ++late)
                    assert_works(mp_plan_add_copy_from(bench.plan, e, from, to, MP_STAGE_AFTER_GATE,
                                                       &error));
        }
        double sent[64], received[64], all[2] = {0};
        mp_carrier_fetch(bench.carrier, MP_STAGE_AFTER_GATE, true, &bench.carrier->late_fetch);
        assert_int_equal(bench.carrier->late_fetch.any, late > 0);
        mp_traffic_totals(bench.carrier->traffic, sent, received);
        for (int r = 0; late > 0 && r < bench.predictor->ranks; r++) {
            bool inside = r >= begin && r < begin + bench.machine.ranks_per_node;
            assert_true(inside || (sent[r] == 0 && received[r] == 0));
            all[0] += sent[r];
            all[1] += received[r];
        }
        for (int side = 0; late > 0 && side < 2; side++)
            assert_close(all[side], late * bench.parameters, 1e-6);
        stayed += late;
    }
    assert_true(stayed > 0);
}

/* One expert to any ranks takes as long as one message, whatever their number: its pieces pass from
 * rank to rank. */
TEST_RANDOM_TURNS(no_port_carries_a_piece_twice, 100, i) {
    AUTO(bench) struct bench bench;
    int copies[64];
    create(&bench, random, 1);
    int all = random_plan(&bench, random, MP_STAGE_BEFORE_GATE, copies);
    mp_carrier_fetch(bench.carrier, MP_STAGE_BEFORE_GATE, true, &bench.carrier->fetch);
    double most = bench.parameters / bench.machine.far_bandwidth + 2 * bench.machine.latency;
    for (int r = 0; all > 0 && r < bench.predictor->ranks; r++)
        assert_true(bench.carrier->fetch.alone[r] <= most * (1 + 1e-6));
}

/* How many copies of its one expert each rank sends, of one that all but `less` of the last ranks
 * get from rank 1. */
static void send_to_all(struct bench *bench, int less, int copies[]) {
    double sent[64];
    mp_placement_set_owners(bench->home, &(int32_t){1});
    begin(bench);
    for (int r = 0; r < bench->predictor->ranks - less; r++)
        if (r != 1)
            assert_works(mp_plan_add_copy(bench->plan, 0, r, MP_STAGE_BEFORE_GATE, &error));
    mp_carrier_fetch(bench->carrier, MP_STAGE_BEFORE_GATE, true, &bench->carrier->fetch);
    mp_traffic_totals(bench->carrier->traffic, sent, NULL);
    for (int r = 0; r < bench->predictor->ranks; r++) {
        copies[r] = (int)lround(sent[r] / bench->parameters);
        assert_close(sent[r], copies[r] * bench->parameters, 1e-6);
    }
}

/* NCCL's own goes on from rank to rank, past its nodes: only the one before the owner sends none.
 * Elsewhere, and without all ranks, the owner has two to send to. */
TEST_RANDOM(a_broadcast_of_nccl_is_a_ring) {
    AUTO(bench) struct bench bench;
    int copies[64];
    do {
        create(&bench, random, 1);
        if (bench.machine.nodes > 1 && bench.machine.ranks_per_node > 2)
            break;
        destroy(&bench);
    } while (true);
    for (int i = 0; i < 4; i++) {
        struct mp_job *job = &bench.predictor->job;
        job->gather = i == 0 ? MP_GATHER_TREES : MP_GATHER_BROADCASTS;
        job->transport = i == 1 ? MP_TRANSPORT_MPI : MP_TRANSPORT_AUTO;
        send_to_all(&bench, i == 2, copies);
        assert_int_equal(copies[1], i == 3 ? 1 : 2);
        for (int r = 0; i == 3 && r < bench.predictor->ranks; r++)
            assert_int_equal(copies[r], r != 0);
    }
}

/* Slices of replicas come from each other, gradients go back the same ways or as sums. */
TEST_RANDOM_TURNS(slices_of_replicas_stay_among_them, 20, i) {
    AUTO(bench) struct bench bench;
    create(&bench, random, test_random_int(random, 1, 12));
    bool sums = i % 2;
    random_even_homes(random, bench.home);
    begin_under(&bench, sums ? MP_OPTIMIZER_REPLICA_SLICES_OF_SUM : MP_OPTIMIZER_REPLICA_SLICES);
    double replicas = mp_placement_copies(&bench.plan->during, 0);
    double foreign = bench.plan->experts * (replicas - 1); /* experts, all slices added up */
    double expected[64] = {0}, sent[64], received[64];
    for (int e = 0; e < bench.plan->experts; e++)
        for (int r = 0; r < bench.predictor->ranks; r++)
            if (mp_placement_holds(&bench.plan->during, e, r))
                expected[r] += bench.parameters * (replicas - 1) / replicas;
    double bytes = mp_carrier_homes(bench.carrier, 0, &bench.carrier->fetch);
    mp_traffic_totals(bench.carrier->traffic, sent, received);
    for (int r = 0; r < bench.predictor->ranks; r++) {
        assert_close(received[r], expected[r], 1e-6);
        assert_close(sent[r], expected[r], 1e-6);
    }
    assert_close(bytes, foreign * bench.parameters, 1e-6);
    mp_carrier_gradients(bench.carrier, 0, true);
    assert_close(all_received(&bench, &bench.gradient_of[MP_SEND_SLICES]),
                 sums ? 0 : foreign * bench.gradient, 1e-6);
    assert_close(all_received(&bench, &bench.gradient_of[MP_SUM_COPIES]),
                 sums ? foreign * bench.gradient : 0, 1e-6);
    assert_close(all_received(&bench, &bench.gradient_of[MP_SHARE_SUMS]),
                 sums ? foreign * bench.gradient : 0, 1e-6);
}

/* V-SYMI-7, an expert of GPT-3 175B: what a phase takes on the network with every
 * rank's slots full of different experts, and with the host's link. */
enum { SYMI_RANKS = 2048, SYMI_EXPERTS = 64, SYMI_SLOTS = 2 };

static void create_symi(struct bench *symi) {
    struct test_machine machine = test_machine_of(SYMI_RANKS, 1);
    machine.peak = machine.memory = machine.memory_bandwidth = machine.host_update = 1e15;
    machine.launch = machine.latency = 0;
    machine.far_bandwidth = 50e9;
    machine.host_bandwidth = 64e9;
    symi->test = test_make(&machine, "ep", 1, SYMI_EXPERTS, 1);
    struct mp_job *job = &symi->test.job.job;
    job->width = 27000; /* with the next number 3.375e9 bytes of an expert in 16 bits */
    job->expert_width = 31250;
    job->heads = 1;
    symi->test.options.gradient_bytes = 2;
    take_predictor(symi);
    assert_close(symi->parameters, 3.375e9, 0);
    int32_t owner[SYMI_EXPERTS];
    for (int e = 0; e < SYMI_EXPERTS; e++)
        owner[e] = e / SYMI_SLOTS;
    mp_placement_set_owners(symi->home, owner);
    for (int slot = 0; slot < SYMI_RANKS * SYMI_SLOTS; slot++)
        mp_placement_add(symi->home, slot % SYMI_EXPERTS, slot / SYMI_SLOTS);
}

/* Seconds of the slowest rank. */
static double slowest(const struct mp_carriage *carriage) {
    double most = 0;
    for (int r = 0; r < SYMI_RANKS; r++)
        most = fmax(most, carriage->seconds[r]);
    return most;
}

/* Both phases under an optimizer: parameters put together, and gradients to who keeps slices. */
static void run_symi(struct bench *symi, enum mp_optimizer_split split, double phase[2]) {
    begin_under(symi, split);
    mp_carrier_homes(symi->carrier, 0, &symi->carrier->fetch);
    phase[0] = slowest(&symi->carrier->fetch);
    mp_carrier_gradients(symi->carrier, 0, true);
    phase[1] = slowest(&symi->gradient_of[MP_SEND_SLICES]);
}

TEST(phases_take_what_symi_says) {
    AUTO(bench) struct bench symi;
    double still[2], moving[2];
    create_symi(&symi);
    /* Of both phases, the update itself taking next to none. */
    double host_seconds =
        mp_costs_offloaded(symi.predictor->costs, symi.parameters * SYMI_EXPERTS / SYMI_RANKS);
    run_symi(&symi, MP_OPTIMIZER_REPLICA_SLICES, still);
    double local = host_seconds / 2;
    assert_within(still[0] + local, 0.134539, 1e-6);
    assert_within(still[1] + local, 0.134539, 1e-6);
    assert_within(still[0] + still[1] + host_seconds, 0.269, 5e-4); /* printed */
    run_symi(&symi, MP_OPTIMIZER_SLICES, moving);
    assert_within(moving[0] + local, 0.136582, 1e-6);
    assert_within(moving[1] + local, 0.136582, 1e-6);
    assert_within(moving[0] + moving[1] + host_seconds, 0.273, 5e-4); /* printed */
    assert_within((moving[0] + local) / (still[0] + local) - 1, 0.0151886, 2e-5);
    assert_within(moving[0] / still[0] - 1, 0.0153770, 2e-5); /* without offload */
}

/* Slices of all ranks come to every holder, and gradients go back. */
TEST_RANDOM_TURNS(slices_come_from_everybody, 20, i) {
    AUTO(bench) struct bench bench;
    create(&bench, random, test_random_int(random, 1, 12));
    bool sums = i % 2;
    double ranks = bench.predictor->ranks, holders = 0, missing = 0;
    random_homes(random, true, bench.home);
    bench.predictor->planner.policy.gather_before_gate = true;
    begin_under(&bench, sums ? MP_OPTIMIZER_SLICES_OF_SUM : MP_OPTIMIZER_SLICES);
    for (int e = 0; e < bench.plan->experts; e++) {
        int held = mp_placement_copies(&bench.plan->during, e);
        holders += held;
        missing += ranks - held;
    }
    mp_carrier_fetch(bench.carrier, MP_STAGE_BEFORE_GATE, true, &bench.carrier->fetch);
    double whole = (ranks - 1) / ranks;
    double received = all_received(&bench, &bench.carrier->fetch);
    assert_close(received, holders * whole * bench.parameters, 1e-6);
    assert_close(bench.carrier->bytes[MP_STAGE_BEFORE_GATE], received, 1e-6);
    mp_carrier_gradients(bench.carrier, 0, true);
    assert_close(all_received(&bench, &bench.gradient_of[MP_SEND_SLICES]),
                 bench.gradient * (sums ? missing / ranks : holders * whole), 1e-6);
    assert_int_equal(bench.gradient_of[MP_SUM_COPIES].any, sums && holders > bench.plan->experts);
    assert_int_equal(bench.gradient_of[MP_SHARE_SUMS].any, sums && holders > bench.plan->experts);
}

/* Experts that move take as long from host to host, and then their parameters come up. */
TEST_RANDOM(what_moves_between_hosts_comes_up) {
    double clock[2][64];
    AUTO(bench) struct bench bench;
    create(&bench, random, 8);
    for (int offload = 0; offload < 2; offload++) {
        struct mp_transfers *moves = &bench.predictor->planner.moves;
        moves->count = 0;
        for (int e = 0; e < 2; e++)
            assert_works(mp_transfers_add(
                moves, (struct mp_transfer){.expert = e, .to = 1, .bytes = 1 << 20}, &error));
        bench.predictor->planner.policy.offload = offload;
        mp_timeline_begin(&bench.predictor->timeline, 0, 0);
        mp_carrier_move(&bench.predictor->carrier, &bench.predictor->timeline);
        memcpy(clock[offload], bench.predictor->timeline.clock, sizeof(double) * 2);
    }
    assert_true(clock[0][1] > 0);
    assert_close(clock[1][0], clock[0][0], 0);
    assert_close(clock[1][1] - clock[0][1], 2 * bench.parameters / bench.machine.host_bandwidth,
                 1e-12);
}
