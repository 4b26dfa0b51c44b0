/* moeperf calibrate as people run it: with one rank and two, refused, stopped.  What it measures is
 * judged in reference/machine. */
#include "harness/cluster/cluster.h"
#include "tests/harness/cli/shell.h"

static void check_quantity(void *context, const char *place, UNUSED const char *unit,
                           const struct mp_quantity *quantity) {
    int *count = context;
    bool measured = !quantity->assumed && strstr(quantity->origin, "measured by moeperf calibrate");
    ++*count;
    if (!isfinite(quantity->value))
        fail_msg("%s is %g", place, quantity->value);
    if (!measured && !quantity->word && !strstr(place, "ports") && !strstr(place, "memory"))
        fail_msg("%s: %s", place, quantity->origin);
}

static struct mp_cluster *calibrated(const char *line, const char *path) {
    struct mp_cluster *cluster = NULL;
    struct mp_error error = {0};
    int count = 0;
    assert_says(line, 0, "GFLOP/s in fp32");
    mp_cluster_load(path, &cluster, &error);
    assert_string_equal(error.text, "");
    mp_cluster_each(cluster, check_quantity, &count);
    assert_true(count >= 20);
    return cluster;
}

TEST(one_rank) {
    struct mp_cluster *cluster =
        calibrated("moeperf calibrate -o one.yaml --quick --ranks 1", "one.yaml");
    assert_int_equal(mp_cluster_ranks(cluster), 1);
    mp_cluster_destroy(cluster);
    assert_says("moeperf show one.yaml", 0, "device.update");
}

TEST(two_ranks) {
    struct mp_cluster *cluster =
        calibrated("moeperf calibrate -o two.yaml --quick --ranks=2", "two.yaml");
    assert_int_equal(mp_cluster_ranks(cluster), 2);
    assert_true(mp_cluster_overlap(cluster) >= 0 && mp_cluster_overlap(cluster) <= 1);
    mp_cluster_destroy(cluster);
    /* And predictions can be made for it. */
    AUTO(json)
    json_t *prediction =
        json_of("moeperf predict --cluster two.yaml --suite skewed --set predict.precision=fp32 "
                "--set predict.attention=flash --iterations 2 --quiet --json",
                0);
    double ms = number(prediction, "systems/0/ms_per_iteration");
    assert_true(ms > 1 && ms < 1e5);
}

TEST(nothing_is_left_of_what_failed) {
    assert_says("moeperf calibrate", 2, "-o FILE names the cluster file");
    assert_says("moeperf calibrate -o .", 2, ". is there and no file");
    assert_says("moeperf calibrate -o a.yaml --trainer /nowhere/train --ranks 1", 2,
                "/nowhere/train");
    assert_says("moeperf calibrate -o a.yaml --trainer false --ranks 1", 2, "nothing was written");
    assert_says("moeperf calibrate -o a.yaml --trainer true --ranks 1", 2, "a.yaml.");
    assert_says("moeperf calibrate -o nowhere/a.yaml --quick --ranks 1", 2, "nowhere/a.yaml");
    assert_says("moeperf-train --calibrate a.yaml --threads 0", 2, "--threads");
    assert_says("moeperf-train --calibrate a.yaml job.yaml", 2, "leave one out");
    assert_says("moeperf-train job.yaml --quick", 2, "--quick is for --calibrate");
    assert_says("ls", 0, "words", LACKS("a.yaml"));
}

TEST(the_user_stops_it) {
    assert_says("echo kept > b.yaml; { moeperf calibrate -o b.yaml --ranks 1 & "
                "sleep 0.7; kill -INT $!; wait $!; test $? = 2; }; ls; cat b.yaml",
                0, "stopped by the user", "kept", LACKS(".partial"));
}

TEST_GROUP(enter_shell, leave_folder);
