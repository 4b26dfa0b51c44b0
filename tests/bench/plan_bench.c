/* What planning one layer costs: begin, before_gate and after_gate of a system, for loads as skewed
 * as real ones.  Every rank plans the same, so this is time that each iteration pays on each rank.
 *
 * Times are thread CPU time: a planner neither waits nor shares.  What is learnt after the step,
 * and what is planned anew there, is timed as well; as some systems do so every now and then, it is
 * the median of the slowest tenth.
 *
 * Loads change from layer to layer by a random tenth and by a change of the hottest experts, so
 * that calibration has something to propose. */
#include <stdlib.h>

#include "baselines/systems.h"
#include "profiler/record/record.h"
#include "reference/base/arena.h"
#include "reference/base/median.h"
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

static int parse_options(struct bench *bench, struct mp_error *error) {
    const struct mp_system *system = bench->system;
    const char *const given[][2] = {{"overlap", bench->row->overlap},
                                    {"memory", bench->row->memory},
                                    {"policy", bench->row->policy}};
    bench->options = calloc(1, system->options_size + 1);
    if (!bench->options)
        return mp_fail(error, MP_ENOMEM, "plan: no memory for options");
    MP_TRY(mp_options_set_defaults(system->options, bench->options, error));
    for (int i = 0; i < 3; i++)
        if (given[i][1])
            MP_TRY(mp_options_set(system->options, bench->options, system->name, given[i][0],
                                  given[i][1], NULL, error));
    return MP_OK;
}

static int prepare(struct bench *bench, const struct mp_systems *systems, struct mp_error *error) {
    const struct row *row = bench->row;
    uint64_t random = 1;
    bench->setting = (struct mp_setting){.layers = 1,
                                         .experts = row->experts,
                                         .top_k = 2,
                                         .topology = {row->ranks, 8},
                                         .tokens_per_rank = 2048,
                                         .expert_bytes = 8 << 20,
                                         .route_bytes = 2048,
                                         .bandwidth = 50e9,
                                         .bandwidth_in_node = 50e9,
                                         .seconds_per_route = 1e-7,
                                         .non_moe_seconds = 4e-3};
    bench->system = mp_systems_find(systems, row->system, error);
    if (!bench->system)
        return MP_ENOTFOUND;
    MP_TRY(parse_options(bench, error));
    MP_TRY(mp_system_create(bench->system, &bench->setting, bench->options, &bench->self, error));
    MP_TRY(mp_plan_create(&bench->setting.topology, row->experts, bench->setting.expert_bytes,
                          &bench->plan, error));
    mp_system_policy(bench->system, bench->self, &bench->setting, &bench->policy);
    bench->plan.policy = &bench->policy;
    for (int i = 0; i < LOADS; i++) {
        MP_TRY(mp_load_create(row->ranks, row->experts, &bench->load[i], error));
        mp_bench_fill_load(&bench->load[i], 4096, 0.8, i, &random);
    }
    MP_TRY(mp_placement_create(row->ranks, row->experts, &bench->home, error));
    MP_TRY(mp_placement_create(row->ranks, row->experts, &bench->next, error));
    return mp_system_initial_homes(bench->system, bench->self, 1, &bench->home, error);
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
    MP_TRY(mp_system_begin_plan(bench->system, bench->self, iteration, 0, &bench->home,
                                &bench->plan, error));
    return mp_system_end_plan(bench->system, bench->self, load, &bench->plan, error);
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
    for (int i = -2; i < repeats; i++) {
        const struct mp_load *load = &bench->load[(i + 2) % LOADS];
        int64_t start = mp_clock_thread_cpu_ns();
        MP_TRY(plan_layer(bench, i + 2, load, error));
        int64_t planned = mp_clock_thread_cpu_ns();
        if (bench->system->after_step)
            MP_TRY(learn(bench, i + 2, load, error));
        if (i < 0)
            continue;
        bench->microseconds[i] = 1e-3 * (double)(planned - start);
        bench->learning[i] = 1e-3 * (double)(mp_clock_thread_cpu_ns() - planned);
    }
    return MP_OK;
}

static int add_row(struct bench *bench, int repeats, json_t *table, struct mp_error *error) {
    struct mp_plan_facts facts;
    mp_plan_facts(&bench->plan, NULL, &facts);
    double median = mp_median_of(bench->microseconds, repeats); /* which sorts them */
    mp_sort_numbers(bench->learning, repeats);
    double learning = bench->learning[repeats - 1 - repeats / 20];
    const struct row *row = bench->row;
    return mp_bench_add_row(table,
                            json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:i, s:f, s:f, s:f}",
                                      "system", row->system, "experts", row->experts, "ranks",
                                      row->ranks, "overlap", row->overlap ? row->overlap : "-",
                                      "memory", row->memory ? row->memory : "-", "policy",
                                      row->policy ? row->policy : "-", "copies", facts.copies,
                                      "cpu_us_per_layer", median, "cpu_us_fastest",
                                      bench->microseconds[0], "cpu_us_after_step", learning),
                            error);
}

static int run_row(struct bench *bench, const struct mp_systems *systems, int repeats,
                   json_t *table, struct mp_error *error) {
    MP_TRY(prepare(bench, systems, error));
    MP_TRY(measure(bench, repeats, error));
    return add_row(bench, repeats, table, error);
}

static const struct mp_option plan_options[] = {
    MP_BENCH_NUMBER("repeats", repeats, "50", 1, 100000, "layers planned per row"),
    {0},
};

static int run(const struct mp_bench_options *options, json_t *result, struct mp_error *error) {
    const int repeats = options->repeats;
    struct mp_systems systems = {0};
    struct mp_arena arena = {0};
    double *microseconds, *learning;
    json_t *table = json_array();
    MP_TRY(mp_systems_register_all(&systems, error));
    MP_TRY(mp_bench_add(result, json_pack("{s:o}", "plans", table), error));
    MP_TAKE_EACH(&arena, repeats, microseconds, learning);
    int code = mp_arena_check(&arena, error);
    for (int i = 0; i < ROWS && !code; i++) {
        struct bench bench = {.row = &rows[i], .microseconds = microseconds, .learning = learning};
        code = run_row(&bench, &systems, repeats, table, error);
        clean_up(&bench);
    }
    mp_arena_release(&arena);
    return code;
}

const struct mp_bench mp_bench_plan = {
    .name = "plan",
    .help = "what planning one layer costs, by system, experts and ranks",
    .options = plan_options,
    .run = run,
};
