/* Sizes worked out by hand, and what planners are told. */
#include "reference/trainer/sizes.h"

#include "reference/model/model.h"
#include "tests/support.h"

static struct mp_job small_job(void) {
    struct mp_job job = {.layers = 3,
                         .width = 8,
                         .heads = 2,
                         .experts = 6,
                         .expert_width = 16,
                         .sequence = 10,
                         .batch = 12,
                         .ranks_per_node = 2,
                         .gate = mp_gate_find("gshard"),
                         .top_k = MP_AUTO,
                         .seed = 9};
    return job;
}

static void sizes_of(const struct mp_element_sizes *elements, struct mp_sizes *sizes) {
    struct mp_job job = small_job();
    mp_job_sizes(&job, elements, sizes);
}

TEST(training_keeps_all_but_elements_in_fp32) {
    struct mp_job job = small_job();
    struct mp_sizes sizes;
    for (int half = 0; half < 2; half++) {
        job.precision = half ? MP_PRECISION_BF16 : MP_PRECISION_FP32;
        size_t element = mp_job_element_bytes(&job);
        struct mp_element_sizes elements = mp_training_elements(element);
        sizes_of(&elements, &sizes);
        assert_int_equal(element, half ? 2 : 4);
        assert_all_close(0, sizes.expert_parameters, 256, sizes.row, half ? 16 : 32);
        assert_all_close(0, sizes.expert, half ? 512 : 1024, sizes.expert_gradient, 1024);
        assert_close(sizes.expert_state, half ? 3 * 1024 : 2 * 1024, 0);
        /* An expert and both moments, in fp32, whatever products read. */
        assert_numbers(sizes.move.parameters, 1024, sizes.move.state, 2 * 1024);
        const struct mp_model_shape shape = {.width = job.width, .expert_width = job.expert_width};
        assert_close(sizes.expert_parameters, (double)mp_model_expert_floats(&shape), 0);
        assert_close(mp_sizes_route_flops(&sizes), (double)mp_model_route_flops(&shape), 0);
    }
}

TEST(others_keep_what_they_say) {
    struct mp_sizes sizes;
    sizes_of(&(struct mp_element_sizes){3, 2, 2, 12}, &sizes); /* gated, fp32 copy, moments */
    assert_numbers(sizes.expert_parameters, 384, sizes.expert, 768, sizes.expert_gradient, 768);
    assert_numbers(sizes.expert_state, 12 * 384, sizes.move.parameters, 4 * 384);
    assert_int_equal(sizes.move.state, 8 * 384);
    sizes_of(&(struct mp_element_sizes){2, 2, 2, 2}, &sizes); /* no room for a copy in fp32 */
    assert_numbers(sizes.move.parameters, 2 * 256, sizes.move.state, 2 * 256);
}

TEST(planners_are_told_the_job_and_its_ranks) {
    struct mp_job job = small_job();
    struct mp_element_sizes elements = mp_training_elements(2);
    struct mp_sizes sizes;
    struct mp_setting setting;
    struct mp_topology topology = mp_job_topology(&job, 3);
    mp_job_sizes(&job, &elements, &sizes);
    mp_job_setting(&job, &sizes, &topology, 2, &setting);
    assert_numbers(setting.layers, 3, setting.experts, 6, setting.top_k, 2);
    assert_numbers(setting.topology.ranks, 3, setting.topology.ranks_per_node, 2);
    assert_int_equal(setting.tokens_per_rank, 20); /* 12 sequences, 3 ranks, 2 micro-batches */
    assert_numbers(setting.expert_bytes, 512, setting.route_bytes, 16);
    assert_numbers(setting.attention_bytes, 4 * 8 * 8 * 4, setting.seed, 9);
    assert_true(setting.bandwidth == 0 && setting.seconds_per_route == 0 &&
                setting.seconds_per_expert == 0 && setting.non_moe_seconds == 0);
    assert_false(setting.choices_apart);
    job.ranks_per_node = MP_ALL;
    assert_int_equal(mp_job_topology(&job, 3).ranks_per_node, 3);
}

TEST(given_figures_go_before_measured_ones) {
    struct mp_job job = small_job();
    struct mp_element_sizes elements = mp_training_elements(4);
    struct mp_setting setting = {.bandwidth = 5,
                                 .bandwidth_in_node = 15,
                                 .latency = 3,
                                 .latency_in_node = 2,
                                 .seconds_per_route = 6,
                                 .seconds_per_expert = 7,
                                 .non_moe_seconds = 8};
    struct mp_sizes sizes;
    mp_job_sizes(&job, &elements, &sizes);
    mp_job_given_figures(&job, &sizes, &setting);
    mp_job_usual_figures(&setting);
    assert_numbers(setting.bandwidth, 5, setting.bandwidth_in_node, 15);
    assert_true(setting.latency == 3 && setting.latency_in_node == 2);
    assert_numbers(setting.seconds_per_route, 6, setting.seconds_per_expert, 7);
    assert_close(setting.non_moe_seconds, 8, 0);
    job.bandwidth = 50;
    assert_close(setting.copies_memory, 0, 0); /* not known */
    job.copies_memory = 500;
    job.expert_rate = 1024;
    job.non_moe_seconds = 80;
    mp_job_given_figures(&job, &sizes, &setting);
    assert_close(setting.bandwidth, 50, 0);
    assert_close(setting.bandwidth_in_node, 50, 0); /* unless it is given, too */
    assert_true(setting.latency == 0 && setting.latency_in_node == 0);
    job.bandwidth_in_node = 150;
    mp_job_given_figures(&job, &sizes, &setting);
    assert_numbers(setting.bandwidth_in_node, 150, setting.bandwidth, 50);
    assert_close(setting.seconds_per_route, 0.5, 0); /* 2 * 2 * 8 * 16 operations */
    assert_numbers(setting.seconds_per_expert, 0, setting.non_moe_seconds, 80);
    assert_close(setting.copies_memory, 500, 0);
    setting = (struct mp_setting){0};
    mp_job_usual_figures(&setting);
    assert_true(setting.bandwidth > 0 && setting.bandwidth_in_node == setting.bandwidth &&
                setting.seconds_per_route > 0 && setting.seconds_per_expert > 0 &&
                setting.non_moe_seconds > 0);
    setting.seconds_per_expert = 0; /* as measured */
    mp_job_usual_figures(&setting);
    assert_close(setting.seconds_per_expert, 0, 0);
}

/* Databases have these names, and so do those who ask them. */
TEST(names_of_facts_and_figures_stay) {
    static const char *const facts[] = {"copies",
                                        "largest-rank-copies",
                                        "bytes-before-gate",
                                        "bytes-after-gate",
                                        "bytes-backward-prefetch",
                                        "bytes-backward-reduce",
                                        "bytes-host",
                                        "routes-local",
                                        "routes-in-node",
                                        "routes-between-nodes",
                                        "routes-dropped",
                                        "rows-padded"};
    static const char *const figures[] = {"bandwidth",         "bandwidth-in-node",
                                          "seconds-per-route", "seconds-per-expert",
                                          "non-moe-seconds",   "copies-memory"};
    const struct mp_plan_facts values = {.copies = 1,
                                         .largest_rank_copies = 2,
                                         .bytes = {3, 4, 5, 6, 99},
                                         .bytes_host = 7,
                                         .routes = 99,
                                         .routes_local = 8,
                                         .routes_in_node = 9,
                                         .routes_between_nodes = 10,
                                         .routes_dropped = 11,
                                         .rows_padded = 12};
    const struct mp_setting setting = {.bandwidth = 1.5,
                                       .bandwidth_in_node = 2.5,
                                       .seconds_per_route = 3.5,
                                       .seconds_per_expert = 4.5,
                                       .non_moe_seconds = 5.5,
                                       .copies_memory = 6.5};
    for (int i = 0; i < 12; i++) {
        assert_string_equal(mp_plan_fact_names[i].name, facts[i]);
        assert_close(mp_named_value(&mp_plan_fact_names[i], &values), i + 1, 0);
    }
    assert_null(mp_plan_fact_names[12].name);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(mp_setting_figures[i].name, figures[i]);
        assert_close(mp_named_value(&mp_setting_figures[i], &setting), i + 1.5, 0);
    }
    assert_null(mp_setting_figures[6].name);
}
