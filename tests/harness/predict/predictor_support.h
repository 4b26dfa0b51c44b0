/* Predictions of small jobs on clusters that a test describes. */
#pragma once

#include "baselines/systems.h"
#include "harness/predict/engine.h"
#include "tests/harness/predict/ends.h"
#include "tests/harness/predict/machine.h"
#include "tests/reference/plan/wanderer.h"

struct test_case {
    struct mp_cluster *cluster;
    struct mp_systems systems;
    struct mp_job_file job;
    struct mp_predict_options options;
    struct mp_load *load; /* [micro-batches][layers] */
};

/* Settings of the job, blanks between them. */
static inline void test_set(struct test_case *test, const char *settings) {
    char words[1024], *rest = words;
    snprintf(words, sizeof words, "%s", settings);
    for (char *word; (word = strsep(&rest, " "));)
        if (*word)
            assert_works(mp_job_set(&test->job, NULL, word, &test->systems, &error));
}

/* `system`: its name, and settings behind it. */
static inline struct test_case test_make(const struct test_machine *machine, const char *system,
                                         int layers, int experts, int micro_batches) {
    char settings[1024];
    snprintf(settings, sizeof settings, "system=%s", system);
    struct test_case test = {.cluster = test_cluster(machine)};
    assert_works(mp_systems_register_all(&test.systems, &error));
    assert_works(mp_systems_register(&test.systems, &wanderer, &error));
    assert_works(mp_job_file_create(&test.job, &error));
    test_set(&test, settings);
    assert_works(mp_options_set_defaults(mp_predict_options_table, &test.options, &error));
    test.options.micro_batches = micro_batches;
    struct mp_job *job = &test.job.job;
    job->ranks = mp_cluster_ranks(test.cluster);
    job->ranks_per_node = machine->ranks_per_node;
    job->layers = layers;
    job->experts = experts;
    job->width = 256;
    job->heads = 4;
    job->expert_width = 1024;
    job->sequence = 512;
    job->batch = job->ranks * micro_batches;
    int count = layers * micro_batches;
    test.load = calloc((size_t)count, sizeof *test.load);
    assert_non_null(test.load);
    for (int i = 0; i < count; i++)
        assert_works(mp_load_create(job->ranks, experts, &test.load[i], &error));
    return test;
}

static inline void test_case_destroy(struct test_case *test) {
    for (int i = 0; i < test->job.job.layers * test->options.micro_batches; i++)
        mp_load_destroy(&test->load[i]);
    free(test->load);
    mp_job_file_destroy(&test->job);
    mp_cluster_destroy(test->cluster);
}

TEST_END(test, struct test_case, test_case_destroy(it))

/* On any machine, with links of any speed and a processor that copies or not. */
static inline struct test_case test_random_case(uint64_t *random, const char *system) {
    struct test_machine machine = test_random_machine(random);
    machine.bandwidth *= pow(10, 2 * test_random_double(random) - 1);
    machine.far_bandwidth *= pow(10, 3 * test_random_double(random) - 1);
    machine.overlap = fmin(1, test_random_int(random, 0, 3) / 2.0);
    return test_make(&machine, system, test_random_int(random, 1, 5),
                     machine.nodes * machine.ranks_per_node * test_random_int(random, 1, 3),
                     test_random_int(random, 0, 2) ? 1 : 3);
}

/* As many as the environment asks for. */
static inline int test_cases(int usual) {
    const char *given = getenv("MOEPERF_CASES");
    return given && *given ? atoi(given) : usual;
}

/* Routes of a source in a micro-batch. */
static inline int test_routes(const struct test_case *test) {
    return test->job.job.sequence * mp_job_top_k(&test->job.job);
}

/* Every source has as many routes as its tokens make; `heat` of them, at random, on top of an even
 * share for each expert: 0 is balanced. */
static inline void test_fill_loads(struct test_case *test, uint64_t *random, double heat) {
    int experts = test->job.job.experts, count = test->job.job.layers * test->options.micro_batches;
    for (int i = 0; i < count; i++) {
        int hot = test_random_int(random, 0, experts - 1);
        for (int source = 0; source < test->load[i].ranks; source++) {
            uint32_t *row = test->load[i].count + (long)source * experts;
            int routes = test_routes(test), even = (int)((1 - heat) * routes) / experts;
            for (int expert = 0; expert < experts; expert++)
                row[expert] = (uint32_t)even;
            routes -= even * experts;
            for (int left = routes; heat > 0 && left > 0;) {
                int some = test_random_int(random, 1, left);
                row[test_random_int(random, 0, 1) ? hot
                                                  : test_random_int(random, 0, experts - 1)] +=
                    (uint32_t)some;
                left -= some;
            }
        }
    }
}

static inline struct mp_predictor *test_predictor(const struct test_case *test,
                                                  const struct mp_predict_sink *sink) {
    struct mp_predictor_config config = {.cluster = test->cluster,
                                         .job = &test->job,
                                         .options = &test->options,
                                         .check_plans = true,
                                         .sink = sink};
    struct mp_predictor *predictor = NULL;
    assert_works(mp_predictor_create(&config, &predictor, &error));
    return predictor;
}

static inline struct mp_prediction test_step(struct mp_predictor *predictor,
                                             const struct test_case *test) {
    struct mp_prediction prediction;
    assert_works(mp_predictor_step(predictor, test->load, &prediction, &error));
    return prediction;
}

/* The mean seconds of some iterations with the same loads, once planners have seen them. */
static inline struct mp_prediction test_predict(const struct test_case *test) {
    AUTO(predictor) struct mp_predictor *predictor = test_predictor(test, NULL);
    struct mp_prediction prediction = {0};
    for (int i = 0; i < 6; i++)
        prediction = test_step(predictor, test);
    return prediction;
}
