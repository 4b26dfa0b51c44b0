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
#include <string.h>

#include "baselines/systems.h"
#include "profiler/record/record.h"
#include "reference/base/arena.h"
#include "reference/base/median.h"
#include "tests/bench/bench.h"

enum { LOADS = 4 };

/* Sizes, one after another; a system has those that it is for. */
enum { SMALL = 1, MANY_EXPERTS = 2, LARGE = 4, LARGEST = 8, BOTH = SMALL | LARGE };
static const struct size {
    int which, experts, ranks;
} sizes[] = {{SMALL, 64, 32}, {MANY_EXPERTS, 256, 32}, {LARGE, 256, 1024}, {LARGEST, 1024, 1024}};

static const struct row {
    const char *system;
    int sizes;
    const char *overlap, *memory, *policy; /* options; NULL for a system without them */
} rows[] = {
    {"ep", SMALL | LARGEST, NULL, NULL, NULL},
    {"deepep", SMALL, NULL, NULL, NULL},
    {"deepspeed", BOTH, NULL, NULL, NULL},
    {"fssdp", BOTH, "16", "all", NULL},
    {"fssdp", BOTH, "16", "2", NULL},
    {"fssdp", LARGE, "all", "8", NULL},
    {"fastermoe", BOTH, NULL, NULL, "paper"},
    {"fastermoe", BOTH, NULL, NULL, "released-fixed"},
    {"free-balance", BOTH, NULL, NULL, NULL},
    {"hiermoe", SMALL, NULL, NULL, NULL},
    {"llep", BOTH, NULL, NULL, NULL},
    {"hetumoe", SMALL, NULL, NULL, NULL},
    {"tutel", SMALL, NULL, NULL, NULL},
    {"lp", BOTH | MANY_EXPERTS, NULL, NULL, NULL},
    {"harmoeny", BOTH | MANY_EXPERTS, NULL, NULL, NULL},
    {"moonep", BOTH, NULL, NULL, NULL},
    {"nodewise", BOTH, NULL, NULL, NULL},
    {"ultraep", BOTH | MANY_EXPERTS, NULL, NULL, NULL},
    {"moetuner", SMALL, NULL, NULL, NULL},
    {"swiftmoe", BOTH, NULL, NULL, NULL},
    {"eplb", BOTH, NULL, NULL, NULL},
    {"laer", BOTH, NULL, NULL, NULL},
    {"smartmoe", SMALL | LARGEST, NULL, NULL, NULL},
    {"flexmoe", BOTH, NULL, NULL, "cost-model"},
};
enum { SIZES = sizeof sizes / sizeof *sizes, ROWS = sizeof rows / sizeof *rows };

struct bench {
    const struct row *row;
    const struct size *size;
    const struct mp_system *system;
    void *options, *self;
    struct mp_setting setting;
    struct mp_policy policy;
    struct mp_plan plan;
    struct mp_load load[LOADS];
    struct mp_arena arena; /* of the next two */
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
    const struct size *size = bench->size;
    uint64_t random = 1;
    bench->setting = (struct mp_setting){.layers = 1,
                                         .experts = size->experts,
                                         .top_k = 2,
                                         .topology = {size->ranks, 8},
                                         .tokens_per_rank = 2048,
                                         .expert_bytes = 8 << 20,
                                         .route_bytes = 2048,
                                         .bandwidth = 50e9,
                                         .bandwidth_in_node = 50e9,
                                         .seconds_per_route = 1e-7,
                                         .non_moe_seconds = 4e-3};
    bench->system = mp_systems_find(systems, bench->row->system, error);
    if (!bench->system)
        return MP_ENOTFOUND;
    MP_TRY(parse_options(bench, error));
    MP_TRY(mp_system_create(bench->system, &bench->setting, bench->options, &bench->self, error));
    MP_TRY(mp_plan_create(&bench->setting.topology, size->experts, bench->setting.expert_bytes,
                          &bench->plan, error));
    mp_system_policy(bench->system, bench->self, &bench->setting, &bench->policy);
    bench->plan.policy = &bench->policy;
    for (int i = 0; i < LOADS; i++) {
        MP_TRY(mp_load_create(size->ranks, size->experts, &bench->load[i], error));
        mp_bench_fill_load(&bench->load[i], 4096, 0.8, i, &random);
    }
    mp_placement_take(&bench->arena, size->ranks, size->experts, &bench->home);
    mp_placement_take(&bench->arena, size->ranks, size->experts, &bench->next);
    MP_TRY(mp_arena_check(&bench->arena, error));
    return mp_system_initial_homes(bench->system, bench->self, 1, &bench->home, error);
}

static void clean_up(struct bench *bench) {
    if (bench->self)
        mp_system_destroy(bench->system, bench->self);
    free(bench->options);
    mp_arena_release(&bench->arena);
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
    return mp_bench_add_row(
        table,
        json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:i, s:f, s:f, s:f}", "system", row->system,
                  "experts", bench->size->experts, "ranks", bench->size->ranks, "overlap",
                  row->overlap ? row->overlap : "-", "memory", row->memory ? row->memory : "-",
                  "policy", row->policy ? row->policy : "-", "copies", facts.copies,
                  "cpu_us_per_layer", median, "cpu_us_fastest", bench->microseconds[0],
                  "cpu_us_after_step", learning),
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
    {"system", MP_OPTION_TEXT, offsetof(struct mp_bench_options, system), "", "all", 0, 0, NULL,
     "whose rows, or all"},
    MP_BENCH_NUMBER("ranks", ranks, "0", 0, 1024, "rows of so many ranks; 0: of any number"),
    {0},
};

static bool is_wanted(const struct mp_bench_options *options, const struct bench *bench) {
    return (bench->row->sizes & bench->size->which) &&
           (strcmp(options->system, "all") == 0 ||
            strcmp(options->system, bench->row->system) == 0) &&
           (options->ranks == 0 || options->ranks == bench->size->ranks);
}

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
    for (int i = 0; i < SIZES * ROWS && !code; i++) {
        struct bench bench = {.size = &sizes[i / ROWS],
                              .row = &rows[i % ROWS],
                              .microseconds = microseconds,
                              .learning = learning};
        if (!is_wanted(options, &bench))
            continue;
        code = run_row(&bench, &systems, repeats, table, error);
        clean_up(&bench);
    }
    if (!code && json_array_size(table) == 0)
        code = mp_fail(error, MP_EINVAL, "plan has no row for --system %s and --ranks %d",
                       options->system, options->ranks);
    mp_arena_release(&arena);
    return code;
}

const struct mp_bench mp_bench_plan = {
    .name = "plan",
    .help = "what planning one layer costs, by system, experts and ranks",
    .options = plan_options,
    .run = run,
};
