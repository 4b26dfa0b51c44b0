/* The same hops: what ranks post over MPI and what they post to NCCL (its double) is, byte for byte
 * and pair for pair, what the network model is given.
 *
 * Nothing is asked of the generator of hops: bytes are counted where a transport's own send is
 * called, and where traffic is added.  The linker puts __wrap_mp_traffic_add in the place of
 * mp_traffic_add (CMakeLists.txt).  Runs under mpirun; all ranks make the same plans. */
#include "reference/comm/nccl/nccl.h"
#include "tests/harness/predict/predictor_support.h"
#include "tests/reference/comm/transports/transport_case.h"

enum { RANKS = 16, EXPERTS = 24, ROUNDS = 6 };

/* Bytes from one rank to another; ranks count their own row. */
struct bytes {
    double of[RANKS][RANKS];
};
static struct bytes posted, modelled;

/* ---- recorders ---- */

static const struct mp_comm_operations *mpi_operations;

static int record_send(struct mp_comm *over, struct mp_messages *messages, int slot,
                       const void *memory, size_t bytes, int rank, int tag,
                       struct mp_error *failure) {
    posted.of[over->rank][rank] += (double)bytes;
    return mpi_operations->send(over, messages, slot, memory, bytes, rank, tag, failure);
}

static int (*nccl_send)(const void *memory, size_t count, int type, int peer, mp_nccl_comm over,
                        void *stream);

static int record_nccl_send(const void *memory, size_t count, int type, int peer, mp_nccl_comm over,
                            void *stream) {
    assert_int_equal(type, MP_NCCL_UINT8);
    posted.of[comm->rank][peer] += (double)count;
    return nccl_send(memory, count, type, peer, over, stream);
}

void __real_mp_traffic_add(struct mp_traffic *traffic, int from, int to, double bytes);
void __wrap_mp_traffic_add(struct mp_traffic *traffic, int from, int to, double bytes);

void __wrap_mp_traffic_add(struct mp_traffic *traffic, int from, int to, double bytes) {
    modelled.of[from][to] += bytes;
    __real_mp_traffic_add(traffic, from, to, bytes);
}

/* ---- one plan, carried out three times ---- */

struct bench {
    struct test_case test;
    struct test_machine machine;
    struct mp_predictor *predictor;
    struct mp_plan *plan;
    char *memory;
    void *chunk[EXPERTS]; /* of this rank; NULL where it holds none */
    struct mp_request *over_mpi, *over_nccl;
};

/* Nodes of a cluster have as many ranks each, and several. */
static int any_nodes(int ranks) {
    int nodes = test_random_int(&shared, 1, 4);
    while (ranks % nodes || ranks / nodes < 2)
        nodes--;
    return nodes;
}

/* Owners and tied replicas, and copies of experts that have no replica, at random. */
static void make_plan(struct bench *bench, bool replicas) {
    struct mp_placement *home = &bench->predictor->planner.home[0];
    random_homes(&shared, replicas, home);
    bench->predictor->planner.policy.optimizer =
        replicas ? MP_OPTIMIZER_REPLICATED : MP_OPTIMIZER_OWNER;
    assert_ok(mp_plan_begin(bench->plan, 0, 0, home, &error));
    for (int tries = test_random_int(&shared, 0, 4 * home->ranks); tries > 0; tries--) {
        int expert = test_random_int(&shared, 0, home->experts - 1);
        int rank = test_random_int(&shared, 0, home->ranks - 1);
        enum mp_stage stage =
            test_random_int(&shared, 0, 1) ? MP_STAGE_BEFORE_GATE : MP_STAGE_AFTER_GATE;
        if (!mp_placement_holds(&bench->plan->during, expert, rank))
            assert_ok(mp_plan_add_copy(bench->plan, expert, rank, stage, &error));
    }
}

static void create(struct bench *bench, bool replicas) {
    const int nodes = any_nodes(world->ranks);
    *bench = (struct bench){.machine = test_machine_of(nodes, world->ranks / nodes)};
    bench->test = test_make(&bench->machine, "fssdp", 1, test_random_int(&shared, 1, EXPERTS), 1);
    bench->test.options.gradient_bytes = 4;
    bench->test.job.job.expert_width = test_random_int(&shared, 0, 1) ? 16 : 600;
    bench->predictor = test_predictor(&bench->test, NULL);
    bench->plan = bench->predictor->planner.plan;
    make_plan(bench, replicas);
    size_t bytes = (size_t)bench->predictor->costs->sizes.expert_gradient;
    bench->memory = device->operations->allocate(device, bytes * EXPERTS);
    assert_non_null(bench->memory);
    for (int e = 0; e < bench->plan->experts; e++)
        if (mp_placement_holds(&bench->plan->during, e, world->rank))
            bench->chunk[e] = bench->memory + (size_t)e * bytes;
    assert_ok(mp_request_create(world, EXPERTS * RANKS, bytes, &bench->over_mpi, &error));
    assert_ok(mp_request_create(comm, EXPERTS * RANKS, bytes, &bench->over_nccl, &error));
    mp_comm_set_nodes(world, bench->machine.ranks_per_node);
    mp_comm_set_nodes(comm, bench->machine.ranks_per_node);
}

TEST_END(bench, struct bench, {
    mp_request_destroy(it->over_mpi);
    mp_request_destroy(it->over_nccl);
    device->operations->release(device, it->memory);
    mp_predictor_destroy(it->predictor);
    test_case_destroy(&it->test);
})

static void start(struct bench *bench, struct mp_comm *over, struct mp_request *request,
                  const struct mp_transfers *list, enum mp_stage stage, bool sums) {
    const struct mp_costs *costs = bench->predictor->costs;
    bool parameters = stage != MP_STAGE_BACKWARD_REDUCE;
    size_t bytes = (size_t)(parameters ? costs->sizes.expert : costs->sizes.expert_gradient);
    memset(&posted, 0, sizeof posted);
    if (sums)
        assert_ok(mp_sparse_reduce_scatter_start(over, list, bench->plan->experts,
                                                 (float *const *)bench->chunk, bytes, NULL, request,
                                                 &error));
    else
        assert_ok(mp_sparse_all_gather_start(over, list, stage, bench->plan->experts, bench->chunk,
                                             bytes, NULL, request, &error));
    assert_ok(mp_request_wait(request, &error));
    device->operations->stream_synchronize(device, NULL);
    assert_ok(mp_comm_sum(world, posted.of[0], RANKS * RANKS, &error));
}

/* `back`: the model lets bytes travel the other way round. */
static void compare(const char *transport, bool back) {
    for (int from = 0; from < world->ranks; from++)
        for (int to = 0; to < world->ranks; to++) {
            double expected = back ? modelled.of[to][from] : modelled.of[from][to];
            if (posted.of[from][to] != expected)
                fail_msg("%s: %g bytes from rank %d to rank %d, the model has %g", transport,
                         posted.of[from][to], from, to, expected);
        }
}

static void compare_both(struct bench *bench, const struct mp_transfers *list, enum mp_stage stage,
                         bool sums) {
    start(bench, world, bench->over_mpi, list, stage, sums);
    compare("mpi", sums);
    start(bench, comm, bench->over_nccl, list, stage, sums);
    compare("nccl", sums);
}

static double all_modelled(void) {
    double sum = 0;
    for (int i = 0; i < RANKS * RANKS; i++)
        sum += modelled.of[i / RANKS][i % RANKS];
    return sum;
}

TEST(copies_travel_as_modelled) {
    static const enum mp_stage stages[] = {MP_STAGE_BEFORE_GATE, MP_STAGE_AFTER_GATE};
    double all = 0;
    for (int round = 0; round < ROUNDS; round++) {
        AUTO(bench) struct bench bench;
        create(&bench, false);
        for (int i = 0; i < 2; i++) {
            memset(&modelled, 0, sizeof modelled);
            mp_carrier_fetch(&bench.predictor->carrier, stages[i], true,
                             &bench.predictor->carrier.fetch);
            compare_both(&bench, &bench.plan->fetch, stages[i], false);
            all += all_modelled();
        }
    }
    assert_true(all > 0);
}

/* Sums of copies and of replicas, which then get the sum: the model has both in one go. */
TEST(sums_travel_as_modelled) {
    double all = 0;
    for (int round = 0; round < ROUNDS; round++) {
        AUTO(bench) struct bench bench;
        create(&bench, round % 2);
        struct mp_transfers share = bench.plan->share;
        bench.plan->share.count = 0;
        memset(&modelled, 0, sizeof modelled);
        mp_carrier_gradients(&bench.predictor->carrier, 0, true);
        compare_both(&bench, &bench.plan->reduce, MP_STAGE_BACKWARD_REDUCE, true);
        all += all_modelled();
        int reduces = bench.plan->reduce.count;
        bench.plan->reduce.count = 0;
        bench.plan->share = share;
        memset(&modelled, 0, sizeof modelled);
        mp_carrier_gradients(&bench.predictor->carrier, 0, true);
        compare_both(&bench, &bench.plan->share, MP_STAGE_BACKWARD_REDUCE, false);
        bench.plan->reduce.count = reduces;
    }
    assert_true(all > 0);
}

TEST_STEP(put_recorders) {
    static struct mp_comm_operations recorded;
    nccl_send = mp_nccl_of(comm)->library.send;
    mp_nccl_of(comm)->library.send = record_nccl_send;
    mpi_operations = world->operations;
    recorded = *mpi_operations;
    recorded.send = record_send;
    world->operations = &recorded;
    return 0;
}

TEST_GROUP(put_recorders, NULL);
