/* What planning one layer costs: begin, before_gate and after_gate of a system, for loads as skewed
 * as real ones.  Every rank plans the same, so this is time that each iteration pays on each rank.
 *
 * Times are thread CPU time: a planner neither waits nor shares.  What is learnt after the step,
 * and what is planned anew there, is timed as well; as some systems do so every now and then, it is
 * the median of the slowest tenth.
 *
 * Loads change from layer to layer by a random tenth and by a change of the hottest experts, so
 * that calibration has something to propose. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "baselines/systems.h"
#include "profiler/record/record.h"
#include "tests/bench/bench.h"

enum { LOADS = 4 };

struct row {
    const char *system;
    int experts, ranks;
    const char *overlap, *memory; /* options of fssdp; NULL for a system without them */
    const char *policy;           /* option of fastermoe, likewise */
};
static const struct row rows[] = {
    {"ep", 64, 32, NULL, NULL, NULL},
    {"deepep", 64, 32, NULL, NULL, NULL},
    {"deepspeed", 64, 32, NULL, NULL, NULL},
    {"fssdp", 64, 32, "16", "all", NULL},
    {"fssdp", 64, 32, "16", "2", NULL},
    {"fastermoe", 64, 32, NULL, NULL, "paper"},
    {"fastermoe", 64, 32, NULL, NULL, "released-fixed"},
    {"free-balance", 64, 32, NULL, NULL, NULL},
    {"hiermoe", 64, 32, NULL, NULL, NULL},
    {"llep", 64, 32, NULL, NULL, NULL},
    {"hetumoe", 64, 32, NULL, NULL, NULL},
    {"tutel", 64, 32, NULL, NULL, NULL},
    {"lp", 64, 32, NULL, NULL, NULL},
    {"lp", 256, 32, NULL, NULL, NULL},
    {"harmoeny", 256, 32, NULL, NULL, NULL},
    {"ultraep", 256, 32, NULL, NULL, NULL},
    {"harmoeny", 64, 32, NULL, NULL, NULL},
    {"moonep", 64, 32, NULL, NULL, NULL},
    {"nodewise", 64, 32, NULL, NULL, NULL},
    {"ultraep", 64, 32, NULL, NULL, NULL},
    {"moetuner", 64, 32, NULL, NULL, NULL},
    {"swiftmoe", 64, 32, NULL, NULL, NULL},
    {"eplb", 64, 32, NULL, NULL, NULL},
    {"laer", 64, 32, NULL, NULL, NULL},
    {"smartmoe", 64, 32, NULL, NULL, NULL},
    {"flexmoe", 64, 32, NULL, NULL, "cost-model"},
    {"ep", 1024, 1024, NULL, NULL, NULL},
    {"deepspeed", 256, 1024, NULL, NULL, NULL},
    {"fssdp", 256, 1024, "16", "all", NULL},
    {"fssdp", 256, 1024, "16", "2", NULL},
    {"fssdp", 256, 1024, "all", "8", NULL},
    {"fastermoe", 256, 1024, NULL, NULL, "paper"},
    {"fastermoe", 256, 1024, NULL, NULL, "released-fixed"},
    {"free-balance", 256, 1024, NULL, NULL, NULL},
    {"llep", 256, 1024, NULL, NULL, NULL},
    {"lp", 256, 1024, NULL, NULL, NULL},
    {"harmoeny", 256, 1024, NULL, NULL, NULL},
    {"moonep", 256, 1024, NULL, NULL, NULL},
    {"nodewise", 256, 1024, NULL, NULL, NULL},
    {"ultraep", 256, 1024, NULL, NULL, NULL},
    {"swiftmoe", 256, 1024, NULL, NULL, NULL},
    {"eplb", 256, 1024, NULL, NULL, NULL},
    {"laer", 256, 1024, NULL, NULL, NULL},
    {"smartmoe", 1024, 1024, NULL, NULL, NULL},
    {"flexmoe", 256, 1024, NULL, NULL, "cost-model"},
};
enum { ROWS = sizeof rows / sizeof *rows };

struct bench {
    const struct row *row;
    const struct mp_system *system;
    void *options, *self;
    struct mp_setting setting;
    struct mp_policy policy;
    struct mp_plan plan;
    struct mp_load load[LOADS];
    struct mp_placement home, next;
    double *microseconds; /* [repeats] */
    double *learning;     /* [repeats], microseconds after the step */
};

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    return z ^ (z >> 29);
}

/* About 4096 routes per rank; expert shares fall as rank^-0.8, the hottest differ by load. */
static void fill_load(struct mp_load *load, int shift, uint64_t *random) {
    double sum = 0;
    for (int expert = 0; expert < load->experts; expert++)
        sum += pow(expert + 1, -0.8);
    for (int source = 0; source < load->ranks; source++)
        for (int expert = 0; expert < load->experts; expert++) {
            int place = (expert * 7 + shift) % load->experts;
            double noise = 0.9 + 0.2 * (double)(next_random(random) % 1024) / 1024;
            load->count[(long)source * load->experts + expert] =
                (uint32_t)(noise * 4096 * pow(place + 1, -0.8) / sum);
        }
}

static int parse_options(struct bench *bench, struct mp_error *error) {
    const struct mp_system *system = bench->system;
    const char *const given[][2] = {{"overlap", bench->row->overlap},
                                    {"memory", bench->row->memory},
                                    {"policy", bench->row->policy}};
    bench->options = calloc(1, system->options_size + 1);
    if (!bench->options)
        return mp_fail(error, MP_ENOMEM, "plan: no memory for options");
    int code = mp_options_set_defaults(system->options, bench->options, error);
    for (int i = 0; i < 3 && !code; i++)
        if (given[i][1])
            code = mp_options_set(system->options, bench->options, system->name, given[i][0],
                                  given[i][1], NULL, error);
    return code;
}

static int prepare(struct bench *bench, const struct mp_systems *systems, struct mp_error *error) {
    uint64_t random = 1;
    bench->setting = (struct mp_setting){.layers = 1,
                                         .experts = bench->row->experts,
                                         .top_k = 2,
                                         .topology = {bench->row->ranks, 8},
                                         .tokens_per_rank = 2048,
                                         .expert_bytes = 8 << 20,
                                         .route_bytes = 2048,
                                         .bandwidth = 50e9,
                                         .bandwidth_in_node = 50e9,
                                         .seconds_per_route = 1e-7,
                                         .non_moe_seconds = 4e-3};
    bench->system = mp_systems_find(systems, bench->row->system, error);
    int code = bench->system ? parse_options(bench, error) : MP_ENOTFOUND;
    if (!code)
        code =
            mp_system_create(bench->system, &bench->setting, bench->options, &bench->self, error);
    if (!code)
        code = mp_plan_create(&bench->setting.topology, bench->setting.experts,
                              bench->setting.expert_bytes, &bench->plan, error);
    if (!code) {
        mp_system_policy(bench->system, bench->self, &bench->setting, &bench->policy);
        bench->plan.policy = &bench->policy;
    }
    for (int i = 0; i < LOADS && !code; i++) {
        code = mp_load_create(bench->row->ranks, bench->row->experts, &bench->load[i], error);
        if (!code)
            fill_load(&bench->load[i], i, &random);
    }
    if (!code)
        code = mp_placement_create(bench->row->ranks, bench->row->experts, &bench->home, error);
    if (!code)
        code = mp_placement_create(bench->row->ranks, bench->row->experts, &bench->next, error);
    if (!code)
        code = mp_system_initial_homes(bench->system, bench->self, 1, &bench->home, error);
    return code;
}

static void clean_up(struct bench *bench) {
    if (bench->self)
        mp_system_destroy(bench->system, bench->self);
    free(bench->options);
    mp_placement_destroy(&bench->home);
    mp_placement_destroy(&bench->next);
    mp_plan_destroy(&bench->plan);
    for (int i = 0; i < LOADS; i++)
        mp_load_destroy(&bench->load[i]);
}

static int plan_layer(struct bench *bench, int64_t iteration, const struct mp_load *load,
                      struct mp_error *error) {
    int code = mp_system_begin_plan(bench->system, bench->self, iteration, 0, &bench->home,
                                    &bench->plan, error);
    return code ? code : mp_system_end_plan(bench->system, bench->self, load, &bench->plan, error);
}

/* The homes that the system wants are those of the next iteration. */
static int learn(struct bench *bench, int64_t iteration, const struct mp_load *load,
                 struct mp_error *error) {
    struct mp_rehome change = {.next = &bench->next};
    mp_placement_copy(&bench->next, &bench->home);
    int code =
        bench->system->after_step(bench->self, iteration, load, &bench->home, &change, error);
    mp_placement_copy(&bench->home, &bench->next);
    return code;
}

/* Two iterations first, which grow all lists and give the window something to predict from. */
static int measure(struct bench *bench, int repeats, struct mp_error *error) {
    int code = MP_OK;
    for (int i = -2; i < repeats && !code; i++) {
        const struct mp_load *load = &bench->load[(i + 2) % LOADS];
        int64_t start = mp_clock_thread_cpu_ns();
        code = plan_layer(bench, i + 2, load, error);
        if (i >= 0)
            bench->microseconds[i] = 1e-3 * (double)(mp_clock_thread_cpu_ns() - start);
        start = mp_clock_thread_cpu_ns();
        if (!code && bench->system->after_step)
            code = learn(bench, i + 2, load, error);
        if (i >= 0)
            bench->learning[i] = 1e-3 * (double)(mp_clock_thread_cpu_ns() - start);
    }
    return code;
}

static int report(struct bench *bench, int repeats, json_t *table, struct mp_error *error) {
    struct mp_plan_facts facts;
    mp_plan_facts(&bench->plan, NULL, &facts);
    double median = mp_bench_median(bench->microseconds, repeats);
    (void)mp_bench_median(bench->learning, repeats); /* sorts */
    double learning = bench->learning[repeats - 1 - repeats / 20];
    const struct row *row = bench->row;
    json_t *line = json_pack(
        "{s:s, s:i, s:i, s:s, s:s, s:s, s:i, s:f, s:f, s:f}", "system", row->system, "experts",
        row->experts, "ranks", row->ranks, "overlap", row->overlap ? row->overlap : "-", "memory",
        row->memory ? row->memory : "-", "policy", row->policy ? row->policy : "-", "copies",
        facts.copies, "cpu_us_per_layer", median, "cpu_us_fastest", bench->microseconds[0],
        "cpu_us_after_step", learning);
    if (json_array_append_new(table, line) != 0)
        return mp_fail(error, MP_ENOMEM, "plan: no memory for the result");
    return MP_OK;
}

static int run_rows(const struct mp_systems *systems, int repeats, json_t *table,
                    struct mp_error *error) {
    double *microseconds = malloc(2 * (size_t)repeats * sizeof *microseconds);
    int code = MP_OK;
    if (!microseconds)
        return mp_fail(error, MP_ENOMEM, "plan: no memory for %d repeats", repeats);
    for (int i = 0; i < ROWS && !code; i++) {
        struct bench bench = {
            .row = &rows[i], .microseconds = microseconds, .learning = microseconds + repeats};
        code = prepare(&bench, systems, error);
        if (!code)
            code = measure(&bench, repeats, error);
        if (!code)
            code = report(&bench, repeats, table, error);
        clean_up(&bench);
    }
    free(microseconds);
    return code;
}

static int run(int argc, char **argv, json_t *result, struct mp_error *error) {
    long repeats = 50;
    const struct mp_bench_option options[] = {{"repeats", &repeats, 1, 100000}, {0}};
    struct mp_systems systems = {0};
    int code = mp_bench_options(argc, argv, options, error);
    if (!code)
        code = mp_systems_register_all(&systems, error);
    if (code)
        return code;
    json_t *table = json_array();
    if (json_object_set_new(result, "plans", table) != 0)
        return mp_fail(error, MP_ENOMEM, "plan: no memory for the result");
    return run_rows(&systems, (int)repeats, table, error);
}

const struct mp_bench mp_bench_plan = {
    .name = "plan",
    .help = "what planning one layer costs, by system, experts and ranks\n"
            "  --repeats N  layers planned per row, 50 unless given\n",
    .run = run,
};
