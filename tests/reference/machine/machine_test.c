/* A machine's figures: measured with one rank, and written as a cluster that can be read. */
#include "reference/machine/machine.h"

#include "harness/cluster/cluster.h"
#include "profiler/record/record.h"
#include "tests/errors.h"
#include "tests/harness/folder.h"

static void count_steps(void *context, int done, int steps, double seconds) {
    int *last = context;
    assert_int_equal(done, *last + 1);
    assert_true(done <= steps && seconds >= 0);
    *last = done == steps ? -1 : done; /* -1 is followed by nothing */
}

TEST(one_rank_measures_a_cluster) {
    struct mp_comm *comm = NULL;
    struct mp_machine machine;
    struct mp_cluster *cluster = NULL;
    int steps = 0;
    const struct mp_machine_settings settings = {
        .threads = 1, .quick = true, .progress = count_steps, .context = &steps};
    assert_works(mp_comm_self_create(&comm, &error));
    assert_works(mp_machine_measure(comm, &settings, &machine, &error));
    assert_int_equal(steps, -1);
    mp_comm_destroy(comm);
    assert_true(machine.peak > 1e8 && machine.peak < 1e15);
    assert_true(machine.launch > 0 && machine.launch < 1e-3);
    assert_true(machine.attention > 0 && machine.attention <= 1);
    for (int i = 0; i < machine.rows; i++)
        for (int j = 0; j < machine.columns; j++)
            for (int way = 0; way < 2; way++)
                assert_true(machine.share[way][i][j] > 0 && machine.share[way][i][j] < 1 + 1e-12);

    assert_works(
        mp_machine_write(&machine, "A \"processor\" \\d of\ttomorrow", "here.yaml", &error));
    assert_works(mp_cluster_load("here.yaml", &cluster, &error));
    assert_string_equal(cluster->device, "A processor d oftomorrow");
    assert_close(cluster->peak[MP_FP32].value / machine.peak, 1, 1e-5);
    assert_close(cluster->launch.value / machine.launch, 1, 1e-5);
    assert_int_equal(cluster->efficiency.directions, 2);
    for (int way = 0; way < 2; way++)
        assert_close(cluster->efficiency.share[way][1][2].value / machine.share[way][1][2], 1,
                     1e-3);
    assert_close(cluster->memory.value / machine.memory, 1, 1e-5);
    assert_int_equal(cluster->levels, 1);
    assert_null(cluster->overlap.origin);
    mp_cluster_destroy(cluster);
}

TEST_RANDOM(several_ranks_have_a_level) {
    struct mp_machine machine = {.ranks = 6,
                                 .threads = 2,
                                 .shares_cores = true,
                                 .peak = 1e11,
                                 .memory = 1e10,
                                 .memory_bandwidth = 1e10,
                                 .launch = 1e-7,
                                 .elementwise = 2e10,
                                 .update = 3e10,
                                 .attention = 0.25,
                                 .copy_bandwidth = 5e9,
                                 .copy_latency = 1e-8,
                                 .bandwidth = 1e9 * (1 + test_random_double(random)),
                                 .latency = 1e-5 * test_random_double(random),
                                 .overlap = test_random_double(random),
                                 .transfers = 1,
                                 .transfer = {{1000, 1e-5, 2e-5}},
                                 .rows = 1,
                                 .columns = 2,
                                 .tokens = {1},
                                 .width = {16, 64},
                                 .share = {{{0.5, 1}}, {{0.25, 0.75}}}};
    struct mp_cluster *cluster = NULL;
    assert_works(mp_machine_write(&machine, "P", "six.yaml", &error));
    assert_works(mp_cluster_load("six.yaml", &cluster, &error));
    assert_int_equal(mp_cluster_ranks(cluster), 6);
    assert_string_equal(cluster->description, "P, as 6 ranks that share cores");
    assert_close(mp_cluster_bandwidth(cluster, 1) / machine.bandwidth, 1, 1e-5);
    assert_close(cluster->level[1].latency.value, machine.latency, 1e-5);
    assert_close(mp_cluster_overlap(cluster), machine.overlap, 1e-5);
    assert_close(mp_cluster_elementwise(cluster), 2e10, 1e-5);
    assert_close(mp_cluster_update(cluster), 3e10, 1e-5);
    assert_close(cluster->attention.value, 0.25, 0);
    assert_close(mp_cluster_share(cluster, MP_FORWARD, 1, 64), 1, 0);
    assert_close(mp_cluster_share(cluster, MP_BACKWARD, 1, 16), 0.25, 0);
    assert_close(mp_cluster_share(cluster, MP_BACKWARD, 1, 64), 0.75, 0);
    assert_false(cluster->overlap.assumed);
    assert_contains(cluster->overlap.origin, "measured by moeperf calibrate on 20",
                    ", P, 6 ranks of 2 threads that share cores");
    mp_cluster_destroy(cluster);
}

TEST(what_cannot_be_written_is_not_left) {
    const struct mp_machine machine = {.ranks = 1, .threads = 1, .rows = 1, .columns = 1};
    assert_fails(mp_machine_write(&machine, "P", "nowhere/here.yaml", &error), MP_EIO,
                 "nowhere/here.yaml");
    limit_files(100);
    assert_sentence(mp_machine_write(&machine, "P", "full.yaml", &error), MP_ENOSPACE,
                    "can't write full.yaml: File too large");
    limit_files(RLIM_INFINITY);
    assert_int_equal(count_entries(".", "full.yaml"), 0);
}

TEST_GROUP(enter_folder, leave_folder);
