/* What moeperf-train records and prints of a run, against what is known otherwise: the machine's
 * own words, counts worked out by hand, sums over the records. */
#include <sched.h>

#include "tests/errors.h"
#include "tests/reference/trainer/program.h"

/* 64 tokens an iteration, 128 routes of each of two layers. */
#define ITERATIONS_TEXT "5"
enum { ITERATIONS = 5, LAYERS = 2, TOKENS = 64, ROUTES = 128, WIDTH = 16, EXPERTS = 4 };
enum { SEQUENCE = 16, HIDDEN = 24, VOCABULARY = 256, MOST = 4096 };

struct number {
    char name[48];
    int64_t iteration;
    int layer;
    double value;
};

static struct {
    struct mp_span span[MOST];
    struct number number[MOST];
    char text[32][2][1024];
    uint32_t routes[ITERATIONS][LAYERS][EXPERTS], dropped[ITERATIONS][LAYERS][EXPERTS];
    int spans, numbers, texts, loads, clocks, status, compute; /* the stream of own work */
    struct mp_spool_header header;
} is;

/* ---- reading ---- */

static void take(const struct mp_spool_record *record) {
    switch (record->type) {
    case MP_SPOOL_SPAN:
        assert_true(is.spans < MOST);
        is.span[is.spans++] = record->as.span;
        break;
    case MP_SPOOL_STREAM:
        if (strcmp(record->as.stream.name, "compute") == 0)
            is.compute = record->as.stream.stream;
        break;
    case MP_SPOOL_NUMBER:
        assert_true(is.numbers < MOST);
        is.number[is.numbers] = (struct number){.iteration = record->as.number.iteration,
                                                .layer = record->as.number.layer,
                                                .value = record->as.number.value};
        snprintf(is.number[is.numbers++].name, 48, "%s", record->as.number.name);
        break;
    case MP_SPOOL_TEXT:
        assert_true(is.texts < 32);
        snprintf(is.text[is.texts][0], 1024, "%s", record->as.text.name);
        snprintf(is.text[is.texts++][1], 1024, "%s", record->as.text.value);
        break;
    case MP_SPOOL_LOAD:
        assert_in_range(record->as.load.iteration, 0, ITERATIONS - 1);
        assert_in_range(record->as.load.layer, 0, LAYERS - 1);
        assert_int_equal(record->as.load.experts, EXPERTS);
        for (int e = 0; e < EXPERTS; e++) {
            int i = (int)record->as.load.iteration, l = record->as.load.layer;
            is.routes[i][l][e] = record->as.load.routes[e];
            is.dropped[i][l][e] = record->as.load.dropped ? record->as.load.dropped[e] : 0;
        }
        is.loads++;
        break;
    case MP_SPOOL_CLOCK:
        if (is.header.rank == 0)
            assert_true(record->as.clock.offset_ns == 0 && record->as.clock.error_ns == 0);
        is.clocks++;
        break;
    case MP_SPOOL_END:
        is.status = record->as.end.status;
        assert_string_equal(record->as.end.reason, "");
        break;
    default:
        break;
    }
}

static void read_records(int rank) {
    AUTO(spool) struct mp_spool_reader *reader = open_spool_of("spools", rank);
    struct mp_spool_record record;
    memset(&is, 0, sizeof is);
    is.status = 1;
    is.header = *mp_spool_header(reader);
    while (next_record(reader, &record))
        take(&record);
    assert_int_equal(mp_spool_unread(reader), 0);
    assert_int_equal(is.status, MP_OK);
}

static const char *text_of(const char *name) {
    for (int i = 0; i < is.texts; i++)
        if (strcmp(is.text[i][0], name) == 0)
            return is.text[i][1];
    return NULL;
}

/* The value, and how often that name is there for the iteration and layer. */
static double numbers_of(const char *name, int64_t iteration, int layer, int *count) {
    double value = NAN;
    *count = 0;
    for (int i = 0; i < is.numbers; i++) {
        const struct number *number = &is.number[i];
        if (strcmp(number->name, name) || number->iteration != iteration || number->layer != layer)
            continue;
        value = number->value;
        ++*count;
    }
    return value;
}

static double number(const char *name, int64_t iteration, int layer) {
    int count;
    double value = numbers_of(name, iteration, layer, &count);
    if (count != 1)
        fail_msg("%s of iteration %d, layer %d is there %d times", name, (int)iteration, layer,
                 count);
    return value;
}

static double run_number(const char *name) {
    return number(name, -1, -1);
}

/* ---- running ---- */

static char command[1024];

static void train_with(const char *launcher, const char *more) {
    snprintf(command, sizeof command,
             "%s%s job.yaml --set system=ep --set iterations=" ITERATIONS_TEXT
             " --set validate-every=2 --set target-loss=1e-3 --set target-window=4 "
             "--spool-directory spools --progress --rate %s",
             launcher, MOEPERF_TRAIN, more);
    if (system(formatted("rm -rf spools; %s >out 2>err", command)))
        fail_with_words(command);
    read_records(0);
}

static void train(const char *more) {
    train_with("", more);
}

/* ---- the machine ---- */

/* The first line that a shell's command prints. */
static const char *said(const char *line) {
    static char text[512];
    *text = 0;
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    if (!fgets(text, sizeof text, pipe))
        *text = 0;
    pclose(pipe);
    text[strcspn(text, "\n")] = 0;
    return text;
}

static void assert_text(const char *name, const char *expected) {
    const char *value = text_of(name);
    if (!value || strcmp(value, expected) != 0)
        fail_msg("%s is \"%s\", not \"%s\"", name, value ? value : "not there", expected);
}

TEST(the_machine_is_named) {
    char host[256] = "", text[300];
    cpu_set_t cores;
    train("");
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    if (access("/proc/cpuinfo", R_OK) == 0 && *said("grep -m 1 '^model name' /proc/cpuinfo"))
        assert_text("environment.cpu",
                    said("sed -n '/^model name/{s/^[^:]*:[ \t]*//p;q}' /proc/cpuinfo"));
    assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
    snprintf(text, sizeof text, "%d", CPU_COUNT(&cores));
    assert_text("environment.cores", text);
    assert_text("environment.kernel", said("uname -sr"));
    assert_text("environment.host", host);
    snprintf(text, sizeof text, "%lld",
             (long long)sysconf(_SC_PHYS_PAGES) * (long long)sysconf(_SC_PAGESIZE));
    assert_text("environment.memory-bytes", text);
    assert_contains(text_of("environment.device"), "oneDNN");
    snprintf(text, sizeof text, "one process, host %s", host);
    assert_text("environment.mpi", text);
    assert_non_null(text_of("environment.compiler"));
    assert_non_null(text_of("environment.revision"));
    command[strlen(command) - 1] = 0; /* the blank before nothing more */
    assert_text("environment.command", command);
    assert_text("text.bytes", said("wc -c <text"));
    assert_true(*text_of("text.digest"));
    assert_contains(text_of("job"), "expert-width: 24");
    assert_string_equal(is.header.host, host);
    assert_numbers(is.header.rank, 0, is.header.ranks, 1, is.header.node, 0);
    assert_int_equal(is.clocks, 2); /* before and behind */
}

/* ---- counts ---- */

TEST(sizes_are_as_worked_out) {
    train("");
    double all = run_number("parameters"), active = run_number("parameters-active");
    /* Of each layer two of four experts are idle: two matrices, and perhaps biases. */
    double expert = (all - active) / (LAYERS * 2);
    assert_in_range((int)expert, 2 * WIDTH * HIDDEN, 2 * WIDTH * HIDDEN + WIDTH + HIDDEN);
    double met = LAYERS * (4 * WIDTH * WIDTH + WIDTH * EXPERTS + 2 * expert) + VOCABULARY * WIDTH;
    assert_close(run_number("model-flops-per-iteration"),
                 TOKENS * (6 * met + LAYERS * 6 * SEQUENCE * WIDTH), 0);
    assert_close(run_number("tokens-per-iteration"), TOKENS, 0);
    assert_close(run_number("target-loss"), 1e-3, 0);
    assert_close(run_number("target-window"), 4, 0);
    assert_close(run_number("bandwidth"), 1e9, 0);
    assert_close(run_number("non-moe-seconds"), 1e-4, 0);
    assert_close(run_number("ranks-share-cores"), 0, 0);
    assert_close(run_number("record-spans"), is.spans, 0);
    assert_true(run_number("record-bytes") >= 64.0 * is.spans);
    assert_true(run_number("record-span-ns") >= 1);
    assert_true(run_number("row-memory-bytes") > 0);
    assert_true(run_number("memory-high-water-bytes") > run_number("row-memory-bytes"));
    assert_true(fmod(run_number("memory-high-water-bytes"), 1024) == 0);
    int count;
    numbers_of("device-memory-high-water-bytes", -1, -1, &count);
    assert_int_equal(count, 0); /* nobody counts it on a processor */
    numbers_of("iterations-to-target", -1, -1, &count);
    assert_int_equal(count, 0);
}

/* A run writes a progress line an iteration, then its rate, and nothing else. */
static void read_output(struct reported lines[], int iterations, double rate[3]) {
    assert_int_equal(read_progress(lines, iterations), iterations);
    AUTO(text) char *out = read_file("out");
    char *last = out;
    for (int i = 0; i < iterations; i++)
        last = strchr(last, '\n') + 1;
    assert_int_equal(sscanf(last, "rate %lf %lf %lf", &rate[0], &rate[1], &rate[2]), 3);
    assert_string_equal(strchr(last, '\n'), "\n");
}

/* Losses follow each other as the trainer prints them; validation comes after every second. */
TEST(losses_are_recorded) {
    int count;
    struct reported lines[ITERATIONS];
    double rate[3], all = 0;
    train("");
    read_output(lines, ITERATIONS, rate);
    for (int i = 0; i < ITERATIONS; i++) {
        assert_numbers(lines[i].done, i + 1, lines[i].of, ITERATIONS);
        assert_within(number("loss", i, -1), lines[i].loss, 1e-6);
        assert_in_range((int)(100 * lines[i].loss), 1, 1000);
        all += 1e-3 * lines[i].ms;
    }
    /* The median of the last three of five. */
    double ms[] = {lines[2].ms, lines[3].ms, lines[4].ms};
    double low = fmin(ms[0], fmin(ms[1], ms[2])), high = fmax(ms[0], fmax(ms[1], ms[2]));
    double median = ms[0] + ms[1] + ms[2] - low - high;
    assert_within(rate[0], median, 0.0021);
    assert_close(rate[1], 1e3 * TOKENS / rate[0], 0.01);
    assert_within(rate[2], 1e-9 * run_number("model-flops-per-iteration") / rate[0], 1e-3);
    assert_true(run_number("training-seconds") >= all);
    for (int i = 0; i < ITERATIONS; i++) {
        double validation = numbers_of("validation-loss", i, -1, &count);
        assert_int_equal(count, i % 2);
        if (i % 2)
            assert_within(validation, number("loss", i, -1), 1);
    }
}

/* Four iterations have a second half of two, whose median lies between them; one has itself. */
TEST(rates_of_few_iterations) {
    struct reported lines[4];
    double rate[3];
    train("--set iterations=4");
    read_output(lines, 4, rate);
    assert_within(rate[0], (lines[2].ms + lines[3].ms) / 2, 0.0021);
    train("--set iterations=1");
    read_output(lines, 1, rate);
    assert_within(rate[0], lines[0].ms, 0.0021);
}

/* ---- spans ---- */

struct seen {
    int count[MP_PHASES][3];
    int64_t tokens[MP_PHASES][3], flops[MP_PHASES][3];
    int64_t begin, end, own; /* of the iteration; of its spans */
};

static void see(int iteration, struct seen *seen) {
    *seen = (struct seen){.begin = 0};
    int64_t last = 0;
    for (int i = 0; i < is.spans; i++) {
        const struct mp_span *span = &is.span[i];
        if (span->iteration != iteration || span->phase == MP_PHASE_VALIDATE ||
            span->stream != is.compute)
            continue;
        int p = span->phase, d = span->direction;
        assert_in_range(p, 0, MP_PHASES - 1);
        assert_true(span->end_ns >= span->start_ns && span->wait_ns >= 0);
        assert_int_equal(span->bytes, 0); /* there is nobody to send to */
        seen->count[p][d]++;
        seen->tokens[p][d] += span->tokens;
        seen->flops[p][d] += span->flops;
        if (p == MP_PHASE_ITERATION) {
            seen->begin = span->start_ns;
            seen->end = span->end_ns;
            continue;
        }
        assert_true(span->start_ns >= last); /* one after the other */
        last = span->end_ns;
        seen->own += span->end_ns - span->start_ns;
    }
    assert_true(seen->begin > 0 && last <= seen->end);
    assert_true(seen->own <= seen->end - seen->begin);
}

static void check_iteration(int iteration, bool drops) {
    static const enum mp_phase of_layers[] = {MP_PHASE_ATTENTION, MP_PHASE_GATE, MP_PHASE_DISPATCH,
                                              MP_PHASE_EXPERT, MP_PHASE_COMBINE};
    struct seen seen;
    int64_t kept = 0;
    see(iteration, &seen);
    for (int l = 0; l < LAYERS; l++) {
        int64_t routes = 0, dropped = 0;
        for (int e = 0; e < EXPERTS; e++) {
            routes += is.routes[iteration][l][e];
            dropped += is.dropped[iteration][l][e];
        }
        assert_int_equal(routes, ROUTES);
        assert_true(drops || dropped == 0);
        assert_close(number("routes-dropped", iteration, l), (double)dropped, 0);
        assert_close(number("routes-local", iteration, l), (double)(routes - dropped), 0);
        assert_close(number("routes-in-node", iteration, l), 0, 0);
        assert_close(number("copies", iteration, l), 0, 0);
        kept += routes - dropped;
    }
    assert_close(number("moves", iteration, -1), 0, 0);
    assert_int_equal(seen.count[MP_PHASE_ITERATION][MP_NO_DIRECTION], 1);
    assert_int_equal(seen.tokens[MP_PHASE_ITERATION][MP_NO_DIRECTION], TOKENS);
    assert_int_equal(seen.tokens[MP_PHASE_DATA][MP_NO_DIRECTION], TOKENS);
    assert_int_equal(seen.count[MP_PHASE_OPTIMIZER][MP_NO_DIRECTION], 1);
    for (int d = MP_FORWARD; d <= MP_BACKWARD; d++) {
        for (size_t i = 0; i < sizeof of_layers / sizeof *of_layers; i++)
            assert_int_equal(seen.count[of_layers[i]][d], LAYERS);
        assert_int_equal(seen.tokens[MP_PHASE_ATTENTION][d], LAYERS * TOKENS);
        assert_int_equal(seen.tokens[MP_PHASE_GATE][d], LAYERS * TOKENS);
        assert_int_equal(seen.tokens[MP_PHASE_EMBED][d], TOKENS);
        int64_t rows = seen.tokens[MP_PHASE_EXPERT][d];
        assert_true(drops ? rows >= kept : rows == kept);
        assert_int_equal(seen.tokens[MP_PHASE_DISPATCH][d], rows);
        assert_int_equal(seen.tokens[MP_PHASE_COMBINE][d], rows);
        /* Two matrices, a multiply and an add each; backward twice. */
        assert_int_equal(seen.flops[MP_PHASE_EXPERT][d], rows * 4 * WIDTH * HIDDEN * (d + 1));
    }
    const struct mp_span *whole = NULL;
    for (int i = 0; i < is.spans; i++)
        if (is.span[i].iteration == iteration && is.span[i].phase == MP_PHASE_ITERATION)
            whole = &is.span[i];
    assert_true(whole->cpu_ns > 0);
    assert_int_equal(whole->layer, -1);
}

TEST(spans_add_up) {
    static const char *const systems[] = {"ep", "fssdp", "swiftmoe", "deepspeed", "smartmoe"};
    for (size_t s = 0; s < sizeof systems / sizeof *systems; s++) {
        bool drops = !strcmp(systems[s], "swiftmoe") || !strcmp(systems[s], "deepspeed");
        train(formatted("--set system=%s", systems[s]));
        assert_int_equal(is.loads, ITERATIONS * LAYERS);
        for (int i = 0; i < ITERATIONS; i++)
            check_iteration(i, drops);
        int validations = 0;
        for (int i = 0; i < is.spans; i++) {
            if (is.span[i].phase != MP_PHASE_VALIDATE)
                continue;
            validations++;
            assert_int_equal(is.span[i].tokens % TOKENS, 0);
            assert_true(is.span[i].tokens > 0);
            assert_int_equal(is.span[i].direction, MP_NO_DIRECTION);
        }
        assert_int_equal(validations, ITERATIONS / 2);
    }
}

/* ---- two ranks ---- */

/* Bytes of the spans of both ranks, and what plans say, of an iteration. */
struct sent {
    double bytes[MP_PHASES][3], before, after, again, reduce, step, crossing, in_flight, between;
    int buckets[LAYERS + 1]; /* sums of gradients: of no layer, of each layer */
};

static void read_sent(struct sent sent[ITERATIONS]) {
    int count;
    memset(sent, 0, ITERATIONS * sizeof *sent);
    for (int rank = 1; rank >= 0; rank--) {
        read_records(rank);
        assert_numbers(is.header.rank, rank, is.header.ranks, 2);
        for (int i = 0; i < ITERATIONS; i++)
            sent[i].between += number("sent-between-nodes", i, -1);
        for (int i = 0; i < is.spans; i++) {
            const struct mp_span *span = &is.span[i];
            struct sent *of = &sent[span->iteration];
            if (span->stream == is.compute && span->bytes > 0)
                of->bytes[span->phase][span->direction] += (double)span->bytes;
            if (span->stream == is.compute)
                continue;
            assert_true(span->tokens == -1 && span->flops == -1 && span->cpu_ns == -1);
            if (span->phase == MP_PHASE_ALLREDUCE) {
                of->in_flight += (double)span->bytes;
                assert_in_range(span->layer + 1, 0, LAYERS);
                of->buckets[span->layer + 1]++;
            }
        }
    }
    for (int i = 0; i < ITERATIONS; i++) {
        for (int l = 0; l < LAYERS; l++) {
            sent[i].before += number("bytes-before-gate", i, l);
            sent[i].after += number("bytes-after-gate", i, l);
            sent[i].again += number("bytes-backward-prefetch", i, l);
            sent[i].reduce += number("bytes-backward-reduce", i, l);
            sent[i].crossing += number("routes-in-node", i, l);
            sent[i].crossing += number("routes-between-nodes", i, l);
            assert_close(numbers_of("routes-in-node", i, l, &count) +
                             numbers_of("routes-between-nodes", i, l, &count) +
                             numbers_of("routes-local", i, l, &count) +
                             numbers_of("routes-dropped", i, l, &count),
                         ROUTES, 0);
        }
        sent[i].step = number("bytes-after-step", i, -1);
    }
}

/* What plans say is what ranks send, all of it over a border of nodes. */
TEST(plans_are_what_travels) {
    static const char *const systems[] = {"fssdp --set options.reshard-interval=2", "swiftmoe",
                                          "laer"};
    const double row = 4.0 * WIDTH;
    double parts = 0, all = 0;
    train("");
    double active = run_number("parameters-active"), parameters = run_number("parameters");
    /* What a ring of two sends of every number that is not an expert's: as much as it has. */
    double dense = 2 * 4.0 * (parameters - (parameters - active) * EXPERTS / (EXPERTS - 2));
    for (size_t s = 0; s < sizeof systems / sizeof *systems; s++) {
        struct sent sent[ITERATIONS];
        train_with(MOEPERF_MPIEXEC " --oversubscribe -n 2 ",
                   formatted("--set ranks=2 --set nodes=2 --set system=%s", systems[s]));
        read_sent(sent);
        for (int i = 0; i < ITERATIONS; i++) {
            const struct sent *of = &sent[i];
            const double *rows = of->bytes[MP_PHASE_DISPATCH], *back = of->bytes[MP_PHASE_COMBINE];
            assert_close(of->bytes[MP_PHASE_FETCH][MP_FORWARD], of->before + of->after, 0);
            assert_close(of->bytes[MP_PHASE_REDUCE][MP_BACKWARD], of->reduce, 0);
            assert_close(rows[MP_FORWARD], of->crossing * row, 0);
            assert_close(rows[MP_BACKWARD], of->crossing * row, 0);
            assert_close(back[MP_FORWARD], of->crossing * row, 0);
            assert_close(back[MP_BACKWARD], of->crossing * row, 0);
            assert_close(of->bytes[MP_PHASE_FETCH][MP_NO_DIRECTION] +
                             of->bytes[MP_PHASE_MOVE][MP_NO_DIRECTION],
                         of->step, 0);
            assert_close(of->between,
                         of->before + of->after + of->again + of->reduce + of->step +
                             4 * of->crossing * row,
                         0);
            assert_numbers(of->bytes[MP_PHASE_ALLREDUCE][MP_BACKWARD], dense, of->in_flight, dense);
            for (int bucket = 0; bucket <= LAYERS; bucket++)
                assert_int_equal(of->buckets[bucket], 2); /* of both ranks */
            parts += of->step;
            all += of->before;
        }
    }
    assert_true(parts > 0 && all > 0);
}

/* ---- delays ---- */

/* The shortest span of a phase in a layer in even (0) or odd (1) iterations, and its wait. */
static double shortest(enum mp_phase phase, int layer, int odd, double *wait) {
    double least = INFINITY;
    for (int i = 0; i < is.spans; i++) {
        const struct mp_span *span = &is.span[i];
        double seconds = 1e-9 * (double)(span->end_ns - span->start_ns);
        if (span->phase != phase || span->layer != layer || span->iteration % 2 != odd ||
            span->stream != is.compute || seconds >= least)
            continue;
        least = seconds;
        *wait = 1e-9 * (double)span->wait_ns;
    }
    assert_true(least < INFINITY);
    return least;
}

/* On rank 1 of two, of every second iteration; a transfer that arrives late is waited for. */
static const struct {
    const char *name;
    enum mp_phase phase;
    int layer;
    bool waits;
} delays[] = {{"expert", MP_PHASE_EXPERT, 1, false},
              {"combine", MP_PHASE_COMBINE, 1, true},
              {"data", MP_PHASE_DATA, -1, false}};

TEST_EACH(delays_are_where_they_are_asked_for, delays, c) {
    const double delay = 0.03;
    double wait;
    train_with(MOEPERF_MPIEXEC " --oversubscribe -n 2 ",
               formatted("--set ranks=2 --set 'inject=rank=1 phase=%s seconds=0.03 every=2 %s'",
                         c->name, c->layer < 0 ? "" : "layer=1"));
    assert_true(shortest(c->phase, c->layer, 0, &wait) - wait < delay);
    read_records(1);
    assert_true(shortest(c->phase, c->layer, 0, &wait) >= delay);
    assert_true(c->waits ? wait >= delay : wait < delay);
    assert_true(shortest(c->phase, c->layer, 1, &wait) - wait < delay);
    assert_true(c->layer < 0 || shortest(c->phase, 0, 0, &wait) - wait < delay);
    assert_true(shortest(MP_PHASE_ATTENTION, 1, 0, &wait) < delay);
}

TEST_GROUP(enter, leave_folder);
