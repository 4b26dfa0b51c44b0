/* The suites that come with moeperf: every job of every one is possible, and they compare what they
 * say they do. */
#include "baselines/systems.h"
#include "harness/suite/paths.h"
#include "harness/suite/suite.h"
#include "tests/errors.h"
#include "tests/harness/folder.h"

TEST_END(suite, struct mp_suite, mp_suite_destroy(it))

static struct mp_systems systems;

static void load(const char *name, struct mp_suite *suite) {
    char path[MP_PATH_SIZE];
    struct mp_error error = {0};
    if (mp_path_file(MP_SUITES, name, path, &error) ||
        mp_suite_load(path, &systems, NULL, suite, &error))
        fail_msg("%s", error.text);
    assert_string_equal(suite->name, name);
    assert_true(*suite->description);
}

/* Jobs of this system that let the gate choose, or replay the suite's loads. */
static int jobs_of(const struct mp_suite *suite, const char *system) {
    int count = 0;
    for (int i = 0; i < suite->count; i++)
        count += !strcmp(suite->job[i].file.job.system, system) &&
                 suite->job[i].file.job.routing == suite->job[0].file.job.routing;
    return count;
}

TEST(all_are_possible) {
    char **names;
    int count = 0;
    assert_works(mp_path_names(MP_SUITES, &names, &error));
    for (; names[count]; count++) {
        AUTO(suite) struct mp_suite suite;
        load(names[count], &suite);
    }
    assert_true(count >= 4);
    mp_path_names_destroy(names);
}

TEST(quickstart_has_its_six) {
    static const char *const expected[] = {"ep",    "fastermoe", "swiftmoe",
                                           "fssdp", "frugal",    "free-balance"};
    AUTO(suite) struct mp_suite suite;
    load("quickstart", &suite);
    assert_int_equal(suite.count, 6);
    for (int i = 0; i < suite.count; i++)
        assert_string_equal(suite.job[i].file.job.system, expected[i]);
}

/* Text, seed and model are the first job's. */
static void assert_same_learning(const struct mp_suite *suite) {
    const struct mp_job *first = &suite->job[0].file.job;
    for (int i = 1; i < suite->count; i++) {
        const struct mp_job *job = &suite->job[i].file.job;
        assert_string_equal(job->text, first->text);
        assert_numbers(job->seed, first->seed, job->ranks, first->ranks);
        assert_numbers(job->layers, first->layers, job->experts, first->experts);
        assert_numbers(job->batch, first->batch, job->iterations, first->iterations);
        assert_int_equal(job->gate, first->gate);
    }
}

/* FSSDP has a second job, with little memory, where loads move or are skewed.  Predictions have a
 * bound, and no yardstick. */
static int jobs_wanted(const char *suite, const char *system) {
    if (strcmp(suite, "predicted") == 0 && strcmp(system, "free-balance") == 0)
        return 0;
    return strcmp(system, "fssdp") == 0 && strcmp(suite, "all-systems") != 0 ? 2 : 1;
}

TEST_TURNS(every_system_is_compared, 2, s) {
    static const char *const complete[] = {"all-systems", "skewed"};
    AUTO(suite) struct mp_suite suite;
    load(complete[s], &suite);
    for (int i = 0; i < systems.count; i++)
        if (jobs_of(&suite, systems.item[i]->name) !=
            jobs_wanted(complete[s], systems.item[i]->name))
            fail_msg("%s has %d jobs of system %s", complete[s],
                     jobs_of(&suite, systems.item[i]->name), systems.item[i]->name);
    assert_int_equal(suite.count, systems.count + 2 * s); /* and EP with balanced routes */
    assert_same_learning(&suite);
}

/* Rounds interleave jobs; one could not tell a slow moment of the machine from a slow system. */
TEST(skewed_has_rounds_and_a_balanced_job) {
    AUTO(suite) struct mp_suite suite;
    load("skewed", &suite);
    assert_true(suite.repeat >= 3);
    const struct mp_job *last = &suite.job[suite.count - 1].file.job;
    assert_string_equal(last->name, "ep balanced");
    assert_string_equal(last->system, "ep");
    assert_true(last->routing != suite.job[0].file.job.routing);
}

/* Quick enough to be the first look at predictions, and everybody meets the same loads. */
TEST(predicted_has_every_system) {
    AUTO(suite) struct mp_suite suite;
    load("predicted", &suite);
    for (int i = 0; i < systems.count; i++)
        assert_int_equal(jobs_of(&suite, systems.item[i]->name),
                         jobs_wanted("predicted", systems.item[i]->name));
    for (int i = 0; i < suite.count; i++) {
        const struct mp_predict_job *job = &suite.job[i], *first = &suite.job[0];
        assert_true(mp_suite_is_predicted(&suite, i));
        assert_non_null(suite.cluster[i]);
        assert_int_equal(job->file.job.ranks, mp_cluster_ranks(suite.cluster[i]));
        assert_string_equal(job->loads, first->loads);
        assert_string_equal(job->cluster, first->cluster);
        assert_memory_equal(&job->options, &first->options, sizeof job->options);
        assert_in_range(job->file.job.iterations, 10, 50);
    }
    assert_same_learning(&suite);
}

static int enter(void **state) {
    int failed = enter_folder(state);
    write_file("words", "some words to train on\n");
    setenv("MOEPERF_TEXT", "words", 1);
    return failed || mp_systems_register_all(&systems, NULL);
}

TEST_GROUP(enter, leave_folder);
