/* The same program: what ranks really post in an iteration, and in which order they begin and await
 * it, is what the predictor's network is given, in the order of its timeline.
 *
 * Systems, options, shapes, nodes and gates are drawn at random.  The predictor gets the loads that
 * the trainer's gates made, or those that the trainer replays, as they are before a plan limits or
 * pulls them: if both do so alike, the planners of both see the same.  Where choices are kept, it
 * gets the experts of every token, from which it counts tokens and transitions itself. */
#include <string.h>

#include "baselines/systems.h"
#include "reference/plan/routes.h"
#include "tests/reference/plan/wanderer.h"
#include "tests/reference/trainer/mpi/trainers.h"
#include "tests/same/trace.h"

enum { ITERATIONS = 4, TRIES = 1000, JOB_EXCHANGES = MP_EXCHANGE_PIPELINED };

/* What a random choice may leave out: each mechanism is met in one of these. */
static const char *const acting[] = {
    ("system=fssdp gate=gshard options.overlap=all options.rematerialise=yes "
     "options.reshard-interval=2"),
    "system=fssdp gate=switch options.overlap=2 options.calibrate=yes options.reshard-interval=2",
    "system=fastermoe gate=gshard options.policy=released-fixed options.group-size=1",
    "system=fastermoe gate=switch options.policy=paper options.group-size=1",
    "system=laer gate=gshard options.rematerialise=yes options.window=1",
    "system=laer gate=switch options.prefetch=2 options.window=1",
    "system=laer gate=gshard options.prefetch=0 options.window=1",
    "system=swiftmoe gate=switch",
    "system=flexmoe gate=gshard options.interval=1 options.policy=laer",
    "system=flexmoe gate=gshard options.interval=1 options.moves=exposed",
    "system=flexmoe gate=gshard options.interval=1 options.offload-optimizer=yes",
    "system=eplb gate=gshard options.interval=1 options.window=1",
    "system=eplb gate=gshard options.interval=1 options.moves=asynchronous",
    "system=smartmoe gate=gshard options.interval=1",
    "system=deepspeed gate=gshard options.expert-parallel=1",
    ("system=deepspeed gate=switch options.expert-parallel=1 options.zero=1 "
     "options.multi-rank-bucket-allreduce=no"),
    ("system=deepspeed gate=gshard options.expert-parallel=2 options.zero=1 "
     "options.offload-optimizer=yes"),
    "system=ep gate=switch options.expert-parallel=1",
    "system=llep gate=gshard options.smallest-gemm=1 options.threshold=1",
    "system=lp gate=gshard options.interval=0",
    "system=harmoeny gate=gshard options.least=1",
    "system=ultraep gate=gshard options.redundant=2",
    "system=moonep gate=softmax top-k=4 options.tolerance=0",
    "system=nodewise gate=gshard nodes=2 options.cover=all options.ahead=all",
    "system=nodewise gate=gshard nodes=2 options.chunks=3 exchange=flat",
    "system=hetumoe gate=gshard",
    "system=tutel gate=gshard options.capacity-factor=0",
    "system=nodewise gate=gshard options.cover=0 options.even=no options.rematerialise=yes",
    "system=tutel gate=switch options.r=0",
    "system=tutel gate=switch experts=1 expert-shards=1 options.r=2",
    "system=tutel gate=switch experts=1 expert-shards=1 options.r=auto",
    "system=ep gate=gshard experts=2 expert-shards=2 options.expert-parallel=2",
    "system=fssdp gate=gshard expert-shards=2 options.overlap=2 options.reshard-interval=2",
    "system=laer gate=gshard expert-shards=4 options.window=1",
    "system=deepspeed gate=switch options.formula=fastmoe-switch options.padded=no",
    "system=follower gate=gshard layers=3 routing=gate",
    "system=follower gate=softmax layers=3 top-k=3 routing=gate",
    "system=hiermoe gate=softmax top-k=4 record-routes=yes",
    "system=hiermoe gate=gshard record-routes=yes exchange-degree=3",
    "system=hiermoe gate=softmax top-k=4",
    "system=hiermoe gate=switch options.interval=1",
    "system=deepep gate=gshard record-routes=yes exchange-degree=4",
    "system=tamoe gate=gshard nodes=2 routing=skewed options.pull=0.8",
};

/* What ranks have sent in one iteration. */
static struct trace mine, predicted;
static trace_row sent[TRACE_OPERATIONS];
static trace_matrix posted[TRACE_OPERATIONS], carried[TRACE_OPERATIONS];

/* What has been met, over all cases. */
static struct {
    int transfers[MP_PHASES][4];  /* by phase and direction */
    int exchanges[JOB_EXCHANGES]; /* by kind, operations that rows travel in */
    int cut[JOB_EXCHANGES];       /* those of chunks */
    int cases, operations, steps;
    int follows; /* experts that moved by transitions */
    int known;   /* layers whose distinct tokens were counted of tokens */
    int sharded; /* cases of experts in shards */
    int rounds;  /* the most in which rows of tokens travelled */
} met;

/* Loads of whole experts, as the predictor is given them. */
static struct mp_load whole[8];

/* ---- a system that looks at transitions ---- */

/* Brings the most frequent successor to where most of its tokens come from, in exchange for
 * another expert. */
static int follow(UNUSED void *self, UNUSED int64_t iteration, const struct mp_load load[],
                  const struct mp_placement home[], struct mp_rehome *change,
                  UNUSED struct mp_error *error) {
    for (int l = 0; load[l].next; l++) {
        int experts = load[l].experts, most = 0;
        for (int i = 1; i < experts * experts; i++)
            most = load[l].next[i] > load[l].next[most] ? i : most;
        struct mp_placement *next = &change->next[l + 1];
        int expert = most % experts, other = 0, to = home[l].owner[most / experts];
        int from = home[l + 1].owner[expert];
        while (home[l + 1].owner[other] != to)
            other++;
        if (from == to)
            continue;
        mp_placement_remove(next, expert, from);
        mp_placement_remove(next, other, to);
        mp_placement_add(next, expert, to);
        mp_placement_add(next, other, from);
        next->owner[expert] = to;
        next->owner[other] = from;
        change->changed = true;
    }
    return MP_OK;
}

static struct mp_system follower(void) {
    struct mp_system system = mp_system_skeleton;
    system.name = "follower";
    system.capabilities |= MP_SYSTEM_USES_TRANSITIONS | MP_SYSTEM_MOVES_OWNERS;
    system.after_step = follow;
    return system;
}

/* ---- jobs ---- */

static void set(struct mp_job_file *file, const struct mp_systems *systems, const char *format,
                ...) {
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    must(set_job(file, text, systems, &error));
}

/* Groups in groups, if there are ranks for any; perhaps the last outermost ones are smaller. */
static void draw_hierarchy(uint64_t *random, char *text, size_t size) {
    int most = world->ranks < 6 ? 2 : 3, sizes[3], count = 0;
    for (int ranks = 2; ranks <= world->ranks && count < 3;
         ranks *= test_random_int(random, 2, most))
        sizes[count++] = ranks;
    size_t at = 0;
    while (count > 0)
        at += (size_t)snprintf(text + at, size - at, "%s%d", at ? ":" : "", sizes[--count]);
}

/* Seldom options that make planners do less than nothing in a few iterations. */
static void draw_options(uint64_t *random, struct mp_job_file *file,
                         const struct mp_systems *systems) {
    char text[64];
    for (const struct mp_option *o = file->system->options; o && o->name; o++) {
        bool often = strstr(o->name, "interval") || strstr(o->name, "smallest");
        if (!often && test_random_int(random, 0, 2) == 0)
            continue;
        draw_value(random, o, text, sizeof text);
        set(file, systems, "options.%s=%s", o->name, text);
    }
}

static void draw_shape(uint64_t *random, struct mp_job_file *file,
                       const struct mp_systems *systems) {
    int ranks = world->ranks, nodes = test_random_int(random, 1, 4);
    while (ranks % nodes != 0)
        nodes--;
    set(file, systems, "ranks=%d", ranks);
    set(file, systems, "nodes=%d", nodes);
    set(file, systems, "seed=%d", test_random_int(random, 0, 1 << 20));
    set(file, systems, "layers=%d", test_random_int(random, 1, 3));
    set(file, systems, "heads=2 check-plans=yes text=- bandwidth=1e9 expert-rate=2e9");
    /* Whole cache lines, to which the trainer's tensors are rounded up, and whole slices of
     * experts. */
    set(file, systems, "width=%d", 16 * test_random_int(random, 1, 2));
    set(file, systems, "expert-width=%d", 24 * test_random_int(random, 1, 2));
    set(file, systems, "expert-shards=%d",
        test_random_int(random, 0, 2) ? 1 : 1 << test_random_int(random, 1, 2));
    set(file, systems, "experts=%d", ranks * test_random_int(random, ranks < 4 ? 2 : 1, 3));
    set(file, systems, "sequence=%d", test_random_int(random, 4, 16));
    set(file, systems, "batch=%d", ranks * test_random_int(random, 1, 2));
    if (met.cases % 3 != 0) { /* a third trains */
        set(file, systems, "mode=%s", met.cases % 3 == 1 ? "prefill" : "decode");
        set(file, systems, "context=%d", test_random_int(random, 0, 5));
    }
    set(file, systems, "routing=%s", test_random_int(random, 0, 2) ? "skewed" : "gate");
    set(file, systems, "skew-experts=%d", test_random_int(random, 1, 2));
    set(file, systems, "skew-share=%g", 0.3 + 0.2 * test_random_double(random));
    set(file, systems, "copies-memory=%d", 10000 * test_random_int(random, 1, 20));
    set(file, systems, "non-moe-seconds=1e-4");
}

static void draw_gate(uint64_t *random, struct mp_job_file *file,
                      const struct mp_systems *systems) {
    static const char *const gates[] = {"gshard", "switch", "softmax", "softmax"};
    int gate = test_random_int(random, 0, 3);
    set(file, systems, "gate=%s", gates[gate]);
    if (gate > 1)
        set(file, systems, "top-k=%d", test_random_int(random, 1, 4));
}

/* A job that its system accepts: with all options at random, or the given ones, the system first.
 */
static void draw_job(uint64_t *random, const char *given, bool drawn,
                     const struct mp_systems *systems, struct mp_job_file *file) {
    struct mp_error refusal = {0};
    for (int i = 0; i < TRIES; i++) {
        must(mp_job_file_create(file, &error));
        set(file, systems, "%s", given);
        draw_shape(random, file, systems);
        set(file, systems, "shared-experts=%d", test_random_int(random, 0, 2));
        set(file, systems, "transport=mpi"); /* whose background lane keeps no order */
        /* In turn, until the system takes one: all of them whole, then all in chunks. */
        const int turn = met.cases + i;
        set(file, systems, "exchange=%s",
            mp_exchange_name((enum mp_exchange_kind)(turn % JOB_EXCHANGES)));
        set(file, systems, "exchange-degree=%d",
            turn / JOB_EXCHANGES % 2 ? test_random_int(random, 2, MP_MOST_DEGREE) : 1);
        if (drawn) {
            draw_gate(random, file, systems);
            draw_options(random, file, systems);
        } else {
            set(file, systems, "%s", given);
        }
        if (file->system->options && mp_options_find(file->system->options, "hierarchy")) {
            char hierarchy[64];
            draw_hierarchy(random, hierarchy, sizeof hierarchy);
            set(file, systems, "options.hierarchy=%s", hierarchy);
        }
        /* As on the predictor's cluster, which predictions know. */
        if (file->system->options && mp_options_find(file->system->options, "message-cost"))
            set(file, systems, "options.message-cost=0");
        if (file->system->options && mp_options_find(file->system->options, "ranks-per-gate"))
            set(file, systems, "options.ranks-per-gate=%d", file->job.ranks / file->job.nodes);
        if (mp_job_check_model(file, &refusal) == MP_OK)
            return;
        mp_job_file_destroy(file);
    }
    end_all_unless(refusal.code, &refusal);
}

/* ---- traces of all ranks ---- */

static void gather(const void *own, size_t bytes, void *all) {
    struct mp_request *request = NULL;
    must(mp_request_create(world, 0, 0, &request, &error));
    must(mp_gather_counts_start(world, own, (int)(bytes / sizeof(uint32_t)), all, request, &error));
    must(mp_request_wait(request, &error));
    mp_request_destroy(request);
}

/* Every rank has begun and awaited the same, and what each has sent is put together in `posted`. */
static void put_together(void) {
    static struct trace traces[TRACE_RANKS];
    static trace_row rows[TRACE_RANKS][TRACE_OPERATIONS];
    size_t operations = (size_t)mine.operations;
    gather(&mine, sizeof mine, traces);
    for (int r = 1; r < world->ranks; r++) {
        assert_numbers(traces[r].operations, mine.operations, traces[r].events, mine.events);
        assert_memory_equal(traces[r].event, traces[0].event,
                            (size_t)mine.events * sizeof *mine.event);
        assert_memory_equal(traces[r].operation, traces[0].operation,
                            operations * sizeof *mine.operation);
    }
    gather(sent, operations * sizeof *sent, rows);
    memset(posted, 0, operations * sizeof *posted);
    for (int r = 0; r < world->ranks; r++)
        for (size_t o = 0; o < operations; o++)
            memcpy(posted[o][r], ((trace_row *)rows)[(size_t)r * operations + o],
                   sizeof(trace_row));
}

static void count_what_was_met(const struct trace *trace, int exchange, int degree) {
    met.operations += trace->operations;
    for (int i = 0; i < trace->operations; i++) {
        const struct trace_operation *o = &trace->operation[i];
        met.transfers[o->phase][o->direction & 3]++;
        met.steps = o->step > met.steps ? o->step : met.steps;
        met.exchanges[exchange] += o->phase == MP_PHASE_DISPATCH;
        met.cut[exchange] += o->phase == MP_PHASE_DISPATCH && degree > 1;
    }
}

/* ---- cases ---- */

static void make_tokens(uint64_t *random, const struct mp_trainer *trainer, int32_t token[],
                        int32_t target[]) {
    for (int i = 0; i < trainer->model.tokens; i++) {
        token[i] = test_random_int(random, 0, 255);
        target[i] = (token[i] * 5 + 7) % 256;
    }
}

static void describe(const struct mp_job_file *file) {
    AUTO(allocated) char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    must(mp_job_write(file, NULL, stream, &error));
    fclose(stream);
    print_error("%s\n", text);
}

static void compare(const struct mp_job_file *file, int iteration) {
    if (trace_equal(&mine, posted, &predicted, carried, world->ranks))
        return;
    print_error("in iteration %d of\n", iteration);
    describe(file);
    mp_comm_abort(world, 1);
}

/* What all ranks' gates chose; or what they replay, before a plan limits or pulls it: the predictor
 * is to do that itself. */
static void put_loads(const struct mp_trainer *trainer, int64_t iteration) {
    const struct mp_loads *loads = &trainer->forced.loads;
    size_t experts = (size_t)trainer->job.experts;
    for (int layer = 0; layer < trainer->job.layers; layer++)
        for (size_t r = 0; r < (size_t)world->ranks; r++) {
            const struct mp_load *load = &trainer->load[layer];
            memcpy(whole[layer].count + r * experts, load->count + r * (size_t)load->experts,
                   experts * sizeof *load->count);
        }
    for (int layer = 0; loads->count && layer < loads->layers; layer++)
        gather(mp_loads_row(loads, iteration, layer, 0), (size_t)loads->experts * sizeof(uint32_t),
               whole[layer].count);
}

/* What all ranks' tokens chose, in the loads; false: it isn't kept, or isn't what is replayed. */
static bool put_routes(struct mp_trainer *trainer) {
    static int32_t chosen[TRACE_RANKS * 2048];
    int top_k = trainer->model.shape.top_k, tokens = trainer->model.tokens;
    size_t each = (size_t)tokens * (size_t)top_k;
    int32_t own[TRACE_RANKS];
    const struct mp_policy *policy = &trainer->planner.policy;
    if (!trainer->choices.expert || policy->outgoing_limit >= 0 || policy->pull > 0)
        return false;
    assert_true(each <= 2048);
    for (int r = 0; r < world->ranks; r++)
        own[r] = tokens;
    for (int l = 0; l < trainer->job.layers; l++) {
        struct mp_load *load = &whole[l];
        gather(trainer->choices.expert + (size_t)l * each, each * sizeof *chosen, chosen);
        must(mp_load_give_routes(load, top_k, own, &error));
        memcpy(load->routes->expert, chosen, each * (size_t)world->ranks * sizeof *chosen);
        must(mp_load_check_routes(load, &error));
    }
    return true;
}

/* The predictor takes the trainer's counts of distinct tokens, or counts them of tokens. */
static void predict(const struct mp_trainer *trainer, bool counts) {
    for (int l = 0; l < trainer->job.layers; l++) {
        const struct mp_load *load = &trainer->load[l];
        whole[l].distinct = counts ? NULL : load->distinct;
        whole[l].distinct_counts = load->distinct_counts;
        met.known += counts && load->distinct;
    }
    network_step(whole, &predicted, carried);
    for (int l = 0; l < trainer->job.layers; l++)
        whole[l].distinct = NULL; /* it was borrowed */
}

static void run(const struct mp_job_file *file, uint64_t *random) {
    struct mp_trainer *trainer = NULL;
    int32_t token[512], target[512];
    must(mp_trainer_create(file, world, NULL, NULL, &trainer, &error));
    assert_true(trainer->model.tokens <= 512);
    /* The job's exchange, or one that the system sets itself. */
    enum mp_exchange_kind exchange = mp_planner_plan(&trainer->planner, 0)->exchange;
    assert_true(exchange == mp_system_exchange(file->system, file->job.exchange) ||
                file->system->capabilities & MP_SYSTEM_PLANS_BEFORE_GATE);
    assert_int_equal(trainer->paths.path != NULL, mp_exchange_of(exchange)->rounds > 1);
    for (int l = 0; l < trainer->job.layers; l++)
        must(mp_load_create(world->ranks, trainer->job.experts, &whole[l], &error));
    met.sharded += mp_job_shards(&trainer->job) > 1;
    if (world->rank == 0)
        network_create(file, &trainer->setting);
    for (int i = 0; i < ITERATIONS; i++) {
        struct mp_trainer_result result;
        make_tokens(random, trainer, token, target);
        transport_watch(trainer, &mine, sent);
        must(mp_trainer_step_on(trainer, token, target, &result, &error));
        transport_forget();
        put_together();
        for (int l = 0; trainer->paths.path && l < trainer->job.layers; l++) {
            int rounds = trainer->paths.path[l * trainer->paths.steps].rounds;
            met.rounds = rounds > met.rounds ? rounds : met.rounds;
        }
        put_loads(trainer, i);
        bool has_routes = put_routes(trainer);
        if (world->rank > 0)
            continue;
        predict(trainer, has_routes);
        compare(file, i);
        met.follows += trainer->choices.transitions ? trainer->planner.moves.count : 0;
        count_what_was_met(&mine, (int)exchange, file->job.exchange_degree);
    }
    if (world->rank == 0)
        network_destroy();
    for (int l = 0; l < trainer->job.layers; l++)
        mp_load_destroy(&whole[l]);
    mp_trainer_destroy(trainer);
    met.cases++;
}

/* Ranks draw the same jobs, and tokens of their own. */
static void run_drawn(uint64_t *random, const char *given, bool drawn,
                      const struct mp_systems *systems) {
    struct mp_job_file file;
    draw_job(random, given, drawn, systems, &file);
    uint64_t own = test_random(random) + (uint64_t)world->rank;
    run(&file, &own);
    mp_job_file_destroy(&file);
}

TEST(trainer_and_predictor_are_the_same_program) {
    struct mp_systems systems = {0};
    uint64_t random = seed;
    int times = world->ranks < 6 ? 4 : world->ranks < 16 ? 2 : 0;
    struct mp_system following = follower();
    must(mp_systems_register_all(&systems, &error));
    must(mp_systems_register(&systems, &following, &error));
    must(mp_systems_register(&systems, &wanderer, &error));
    for (size_t i = 0; i < sizeof acting / sizeof *acting; i++)
        run_drawn(&random, acting[i], false, &systems);
    for (int i = 0; i < times * systems.count; i++)
        run_drawn(&random, formatted("system=%s", systems.item[i % systems.count]->name), true,
                  &systems);
    for (int i = 0; i < 6 * times; i++)
        run_drawn(&random, "system=wanderer", true, &systems);
    if (world->rank > 0)
        return;
    print_message("%d cases, %d operations, exchanges in up to %d steps\n", met.cases,
                  met.operations, met.steps + 1);
    assert_true(met.transfers[MP_PHASE_FETCH][MP_FORWARD] > 0);
    assert_true(met.transfers[MP_PHASE_FETCH][MP_BACKWARD] > 0);
    assert_true(met.transfers[MP_PHASE_FETCH][MP_NO_DIRECTION & 3] > 0);
    assert_true(met.transfers[MP_PHASE_REDUCE][MP_BACKWARD] > 0);
    assert_true(met.transfers[MP_PHASE_MOVE][MP_NO_DIRECTION & 3] > 0);
    assert_true(met.steps >= world->ranks - 1);
    assert_true(met.follows > 0);
    assert_true(met.known > 0);
    assert_true(met.sharded > 0);
    assert_true(met.rounds >= (world->ranks < 4 ? 2 : 3));
    for (int kind = 0; kind < JOB_EXCHANGES; kind++) {
        assert_true(met.exchanges[kind] > 0);
        assert_true(met.cut[kind] > 0);
    }
}
