/* Another system on a recorded run whose every span follows from its routes by known rates: its own
 * system planned again takes as long, a balancing one what can be worked out by hand. */
#include "harness/predict/other_system.h"

#include "baselines/systems.h"
#include "tests/results/runs.h"

enum { RANKS = 2, LAYERS = 2, EXPERTS = 4, TOKENS = 64, ITERATIONS = 12, ATTENTION = 4000 };
/* Microseconds. */
enum { FIXED = 300, PER_ROUTE = 20, BACKWARD = 2, ROW_FIXED = 50, PER_ROW = 3, SLOW_ROW = 30 };

#define JOB(more)                                                                                  \
    "{ranks: 2, layers: 2, experts: 4, width: 8, heads: 2, expert-width: 8, sequence: 32, "        \
    "batch: 4, text: words, routing: trace, trace: any, " more "}"

static const char job_text[] = JOB("system: ep");

/* What runs differ in. */
struct kind {
    int per_row;          /* microseconds */
    const char *job;      /* NULL: none is recorded */
    const char *executor; /* NULL: measured */
    bool at_home;         /* all routes are computed where their tokens are */
};

/* Counts of an iteration: rows of 2 * TOKENS routes, each expert some, none above TOKENS. */
static void make_load(uint64_t *random, bool at_home, uint32_t count[LAYERS][RANKS][EXPERTS]) {
    for (int l = 0; l < LAYERS; l++)
        for (int r = 0; r < RANKS; r++) {
            uint32_t hot = (uint32_t)test_random_int(random, 2, TOKENS - 4);
            uint32_t *row = count[l][r];
            row[0] = hot;
            row[1] = TOKENS - (TOKENS - hot) / 2;
            row[2] = (2 * TOKENS - row[0] - row[1]) / 2;
            row[3] = 2 * TOKENS - row[0] - row[1] - row[2];
            for (int e = 0; at_home && e < EXPERTS; e++)
                row[e] = e / 2 == r ? TOKENS : 0;
        }
}

struct clocks {
    int64_t at[RANKS];
};

static void spend(struct runs_rank ranks[], struct clocks *clocks, int rank, int iteration,
                  enum mp_phase phase, enum mp_direction direction, int layer, int64_t length,
                  int64_t wait) {
    runs_record(
        &ranks[rank], iteration,
        &(struct runs_span){phase, direction, clocks->at[rank], length, wait, layer, 1, -1, false});
    clocks->at[rank] += length;
}

/* All ranks meet and go on `transfer` after the last. */
static void meet(struct runs_rank ranks[], struct clocks *clocks, int iteration,
                 enum mp_phase phase, enum mp_direction direction, int layer, int64_t transfer) {
    int64_t latest = 0;
    for (int r = 0; r < RANKS; r++)
        latest = clocks->at[r] > latest ? clocks->at[r] : latest;
    for (int r = 0; r < RANKS; r++) {
        int64_t wait = latest + transfer - clocks->at[r];
        spend(ranks, clocks, r, iteration, phase, direction, layer, wait, wait);
    }
}

/* Experts 0 and 1 are rank 0's: what it computes, and the rows that cross its border. */
static void layer_of(const uint32_t count[RANKS][EXPERTS], int64_t routes[RANKS], int64_t *rows) {
    int64_t out = (int64_t)count[0][2] + count[0][3], in = (int64_t)count[1][0] + count[1][1];
    routes[0] = (int64_t)count[0][0] + count[0][1] + in;
    routes[1] = 4 * TOKENS - routes[0];
    *rows = in > out ? in : out;
}

/* The run, and what it would have taken with routes spread evenly and no rows to send. */
static double record_kind(struct runs_folder *folder, uint64_t *random, const struct kind *kind) {
    int per_row = kind->per_row;
    struct runs_rank ranks[RANKS];
    struct clocks clocks = {{0}};
    struct mp_error error = {0};
    const char *paths[RANKS];
    double balanced = 0;
    for (int r = 0; r < RANKS; r++)
        runs_rank_open(folder, r, RANKS, &ranks[r]);
    for (int i = 0; i < ITERATIONS; i++) {
        uint32_t count[LAYERS][RANKS][EXPERTS];
        int64_t routes[RANKS], rows, begin = clocks.at[0];
        make_load(random, kind->at_home, count);
        int64_t even = LAYERS * 2 * ATTENTION;
        for (int way = 0; way < 2; way++)
            for (int l = 0; l < LAYERS; l++) {
                enum mp_direction direction = way ? MP_BACKWARD : MP_FORWARD;
                layer_of(count[l], routes, &rows);
                int64_t transfer = per_row ? ROW_FIXED + per_row * rows : 0;
                for (int r = 0; r < RANKS; r++)
                    spend(ranks, &clocks, r, i, MP_PHASE_ATTENTION, direction, l, ATTENTION, 0);
                meet(ranks, &clocks, i, way ? MP_PHASE_COMBINE : MP_PHASE_DISPATCH, direction, l,
                     transfer);
                for (int r = 0; r < RANKS; r++)
                    spend(ranks, &clocks, r, i, MP_PHASE_EXPERT, direction, l,
                          (way ? BACKWARD : 1) * (FIXED + PER_ROUTE * routes[r]), 0);
                meet(ranks, &clocks, i, way ? MP_PHASE_DISPATCH : MP_PHASE_COMBINE, direction, l,
                     transfer);
                even += (way ? BACKWARD : 1) * (FIXED + PER_ROUTE * 2 * TOKENS);
            }
        balanced = 1e-6 * (double)even;
        for (int r = 0; r < RANKS; r++) {
            runs_record(&ranks[r], i,
                        &(struct runs_span){MP_PHASE_ITERATION, MP_NO_DIRECTION, begin,
                                            clocks.at[r] - begin, 0, -1, TOKENS, -1, false});
            for (int l = 0; l < LAYERS; l++)
                mp_record_load(ranks[r].compute, i, l, EXPERTS, count[l][r], NULL);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        mp_record_text(ranks[r].compute, "environment.host", "here");
        if (r == 0)
            mp_record_number(ranks[r].compute, -1, -1, "bandwidth", 1e9);
        runs_clock_samples(&ranks[r]);
        runs_rank_close(&ranks[r], MP_OK, "");
        paths[r] = ranks[r].path;
    }
    struct mp_store_run description = runs_description("ep", "trace");
    description.job_text = kind->job;
    description.executor = kind->executor ? kind->executor : description.executor;
    runs_ok(mp_store_ingest(folder->store, &description, paths, RANKS, NULL, &error), &error);
    return balanced;
}

static double record(struct runs_folder *folder, uint64_t *random, int per_row, bool with_job) {
    return record_kind(folder, random, &(struct kind){per_row, with_job ? job_text : NULL, 0, 0});
}

struct asked {
    struct mp_systems systems;
    struct mp_recorded recorded;
    struct mp_what_if *what_if;
    struct mp_other_system *other;
};

static int ask(struct runs_folder *folder, int64_t run, struct asked *asked,
               struct mp_error *error) {
    *asked = (struct asked){.other = NULL};
    runs_ok(mp_systems_register_all(&asked->systems, error), error);
    runs_ok(mp_recorded_read(folder->store, "d", run, &asked->recorded, error), error);
    runs_ok(mp_what_if_create(&asked->recorded, &asked->what_if, error), error);
    return mp_other_system_create(asked->what_if, &asked->recorded, folder->store, "d",
                                  &asked->systems, &asked->other, error);
}

static void forget(struct asked *asked) {
    mp_other_system_destroy(asked->other);
    mp_what_if_destroy(asked->what_if);
    mp_recorded_destroy(&asked->recorded);
}

/* With so many options. */
static struct mp_other_answer answer_of(struct asked *asked, const char *name,
                                        const char *const (*option)[2], int options) {
    struct mp_error error = {0};
    const struct mp_other_request request = {name, option, options};
    struct mp_other_answer answer;
    runs_ok(mp_other_system_ask(asked->other, &request, &answer, &error), &error);
    return answer;
}

static double median_of(struct asked *asked, const char *name) {
    return answer_of(asked, name, NULL, 0).seconds;
}

static void rates_are_those_of_the_spans(void **state) {
    struct runs_folder *folder = *state;
    uint64_t random = test_seed();
    struct asked asked;
    struct mp_error error = {0};
    record(folder, &random, PER_ROW, true);
    runs_ok(ask(folder, 1, &asked, &error), &error);
    const struct mp_other_rates *rates = mp_other_system_rates(asked.other);
    for (int way = 0; way < 2; way++) {
        double times = way ? BACKWARD : 1;
        assert_close(rates->expert[way].fixed * 1e6 / (times * FIXED), 1, 0.02);
        assert_close(rates->expert[way].slope * 1e6 / (times * PER_ROUTE), 1, 0.02);
        assert_close(rates->dispatch[way].slope * 1e6 / PER_ROW, 1, 0.05);
        assert_close(rates->combine[way].slope * 1e6 / PER_ROW, 1, 0.05);
    }
    assert_true(rates->rows_counted);
    assert_false(rates->copies_counted);
    assert_close(rates->copies[0].slope * 1e9, 1, 1e-9);

    /* Planned again it takes as long as it took, and nothing is left of that for the next. */
    struct mp_what_if_change nothing = mp_what_if_nothing();
    double replayed = mp_what_if_median(asked.what_if, &nothing);
    for (int i = 0; i < 2; i++) {
        assert_close(median_of(&asked, "ep") / replayed, 1, 0.01);
        assert_true(median_of(&asked, "ideal") < replayed);
    }
    assert_close(mp_what_if_median(asked.what_if, &nothing), replayed, 0);
    forget(&asked);
}

static void a_balanced_system_takes_what_is_left(void **state) {
    struct runs_folder *folder = *state;
    uint64_t random = test_seed();
    struct asked asked;
    struct mp_error error = {0};
    double balanced = record(folder, &random, 0, true);
    runs_ok(ask(folder, 1, &asked, &error), &error);
    assert_close(median_of(&asked, "ideal") / balanced, 1, 0.01);
    forget(&asked);
}

/* Without rows to take it from, the bandwidth (1e9 B/s) says what a row takes. */
static void sizes_are_those_of_who_ran_it(void **state) {
    static const struct {
        struct kind kind;
        int row, expert; /* B */
        bool hides;
    } cases[] = {
        {{0, JOB("system: ep"), NULL, true}, 8 * 4, 2 * 64 * 4, false},
        {{0, JOB("system: ep, precision: bf16"), NULL, true}, 8 * 2, 2 * 64 * 2, false},
        {{0, JOB("system: ep, device: cuda, precision: bf16"), NULL, true},
         8 * 2,
         2 * 64 * 2,
         true},
        {{0, JOB("system: ep, executor: predicted, predict: {expert-matrices: 3}"), "predicted",
          true},
         8 * 2,
         3 * 64 * 2,
         true},
    };
    struct runs_folder *folder = *state;
    uint64_t random = test_seed();
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        struct asked asked;
        struct mp_error error = {0};
        record_kind(folder, &random, &cases[i].kind);
        runs_ok(ask(folder, i + 1, &asked, &error), &error);
        const struct mp_other_rates *rates = mp_other_system_rates(asked.other);
        const struct mp_setting *setting = mp_other_system_setting(asked.other);
        assert_false(rates->rows_counted);
        assert_close(rates->dispatch[0].slope * 1e9, cases[i].row, 1e-9);
        assert_int_equal(setting->route_bytes, cases[i].row);
        assert_int_equal(setting->expert_bytes, cases[i].expert);
        assert_int_equal(rates->hides, cases[i].hides);
        forget(&asked);
    }
}

/* In steps, half of the rows are there at once, and the others arrive under their experts. */
static void steps_save_time_where_transfers_pass_beside_work(void **state) {
    static const char *const flat[][2] = {{"shadows", "0"}, {"smart-schedule", "no"}};
    static const char *const steps[][2] = {{"shadows", "0"}, {"group-size", "1"}};
    static const struct kind kinds[] = {
        {SLOW_ROW, JOB("system: ep"), NULL, false},
        {SLOW_ROW, JOB("system: ep, device: cuda"), NULL, false},
    };
    struct runs_folder *folder = *state;
    uint64_t random = test_seed();
    for (int i = 0; i < 2; i++) {
        struct asked asked;
        struct mp_error error = {0};
        struct mp_what_if_change nothing = mp_what_if_nothing();
        record_kind(folder, &random, &kinds[i]);
        runs_ok(ask(folder, i + 1, &asked, &error), &error);
        double replayed = mp_what_if_median(asked.what_if, &nothing);
        assert_close(answer_of(&asked, "fastermoe", flat, 2).seconds / replayed, 1, 0.01);
        double stepped = answer_of(&asked, "fastermoe", steps, 2).seconds;
        /* Each of 4 passes calls the experts once more; on GPUs an exchange is hidden instead. */
        double calls = LAYERS * (1 + BACKWARD) * 1e-6 * FIXED;
        if (i == 0)
            assert_close(stepped, replayed + calls, 0.01);
        else
            assert_true(stepped < 0.99 * replayed);
        forget(&asked);
    }
}

/* Each rank's experts are called twice, for its own rows and for the other's, which travel in one
 * exchange: seen where nothing hides it. */
static void a_run_in_steps_shows_calls_and_what_is_not_hidden(void **state) {
#define STEPS "system: fastermoe, options: {shadows: 0, group-size: 1}"
    static const struct kind kinds[] = {
        {PER_ROW, JOB(STEPS), NULL, false},
        {PER_ROW, JOB(STEPS ", device: cuda"), NULL, false},
    };
    struct runs_folder *folder = *state;
    uint64_t random = test_seed();
    for (int i = 0; i < 2; i++) {
        struct asked asked;
        struct mp_error error = {0};
        record_kind(folder, &random, &kinds[i]);
        runs_ok(ask(folder, i + 1, &asked, &error), &error);
        const struct mp_other_rates *rates = mp_other_system_rates(asked.other);
        assert_close(rates->expert[0].fixed * 1e6, FIXED / 2., 0.05);
        assert_close(rates->expert[0].slope * 1e6, PER_ROUTE, 0.02);
        assert_int_equal(rates->rows_counted, i == 0);
        assert_close(rates->dispatch[0].slope * 1e6, i == 0 ? PER_ROW : 1e-3 * 8 * 4, 0.05);
        forget(&asked);
    }
}

/* Rank 0 has more routes than its half in all iterations: expert 1 has most, and another place at
 * once. */
static void experts_that_moved_stay_there(void **state) {
    static const char *const often[][2] = {{"interval", "1"}, {"history", "1"}};
    struct runs_folder *folder = *state;
    uint64_t random = test_seed();
    struct asked asked;
    struct mp_error error = {0};
    record(folder, &random, 0, true);
    runs_ok(ask(folder, 1, &asked, &error), &error);
    double stays = median_of(&asked, "ep");
    double moves = answer_of(&asked, "smartmoe", often, 2).seconds;
    assert_true(moves < 0.99 * stays && moves > median_of(&asked, "ideal"));
    forget(&asked);
}

static void systems_take_options(void **state) {
    static const char *const slots[][2] = {{"slots", "3"}}, *const none[][2] = {{"slot", "3"}};
    static const char *const bad[][2] = {{"capacity-factor", "much"}};
    struct runs_folder *folder = *state;
    uint64_t random = test_seed();
    struct asked asked;
    struct mp_error error = {0};
    struct mp_other_answer answer;
    const struct kind kind = {PER_ROW, JOB("system: swiftmoe, options: {capacity-factor: 8}"), 0,
                              0};
    record_kind(folder, &random, &kind);
    runs_ok(ask(folder, 1, &asked, &error), &error);
    assert_string_equal(answer_of(&asked, "ep", NULL, 0).options, "");
    /* The run's own keeps the run's, others have their defaults. */
    assert_string_equal(answer_of(&asked, "swiftmoe", NULL, 0).options,
                        "slots=auto capacity-factor=8");
    assert_string_equal(answer_of(&asked, "swiftmoe", slots, 1).options,
                        "slots=3 capacity-factor=8");
    assert_non_null(strstr(answer_of(&asked, "deepspeed", NULL, 0).options, "capacity-factor=1"));
    assert_int_equal(mp_other_system_ask(asked.other,
                                         &(struct mp_other_request){"swiftmoe", none, 1}, &answer,
                                         &error),
                     MP_EINVAL);
    assert_string_equal(error.text, "unknown option \"slot\" for system swiftmoe; did you mean "
                                    "\"slots\"?");
    error = (struct mp_error){0};
    assert_int_equal(mp_other_system_ask(asked.other,
                                         &(struct mp_other_request){"swiftmoe", bad, 1}, &answer,
                                         &error),
                     MP_EINVAL);
    error = (struct mp_error){0};
    assert_int_equal(mp_other_system_ask(asked.other, &(struct mp_other_request){"ep", slots, 1},
                                         &answer, &error),
                     MP_EINVAL);
    assert_non_null(strstr(error.text, "has no options"));
    forget(&asked);
}

static void what_is_missing_is_named(void **state) {
    struct runs_folder *folder = *state;
    uint64_t random = test_seed();
    struct asked asked;
    struct mp_error error = {0};
    struct mp_other_answer answer;
    record(folder, &random, PER_ROW, false);
    assert_int_equal(ask(folder, 1, &asked, &error), MP_ENOTFOUND);
    assert_string_equal(error.text, "run 1 of d has no job file, so no sizes to plan by");
    forget(&asked);
    record(folder, &random, PER_ROW, true);
    error = (struct mp_error){0};
    runs_ok(ask(folder, 2, &asked, &error), &error);
    assert_int_equal(mp_other_system_ask(asked.other, &(struct mp_other_request){"fsdp", NULL, 0},
                                         &answer, &error),
                     MP_ENOTFOUND);
    assert_non_null(strstr(error.text, "\"fsdp\""));
    forget(&asked);
    error = (struct mp_error){0};
    assert_int_equal(
        sqlite3_exec(mp_store_connection(folder->store), "DELETE FROM load", NULL, NULL, NULL),
        SQLITE_OK);
    assert_int_equal(ask(folder, 2, &asked, &error), MP_ENOTFOUND);
    assert_string_equal(error.text, "run 2 of d recorded no loads");
    forget(&asked);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rates_are_those_of_the_spans, runs_setup, runs_teardown),
        cmocka_unit_test_setup_teardown(a_balanced_system_takes_what_is_left, runs_setup,
                                        runs_teardown),
        cmocka_unit_test_setup_teardown(sizes_are_those_of_who_ran_it, runs_setup, runs_teardown),
        cmocka_unit_test_setup_teardown(steps_save_time_where_transfers_pass_beside_work,
                                        runs_setup, runs_teardown),
        cmocka_unit_test_setup_teardown(a_run_in_steps_shows_calls_and_what_is_not_hidden,
                                        runs_setup, runs_teardown),
        cmocka_unit_test_setup_teardown(experts_that_moved_stay_there, runs_setup, runs_teardown),
        cmocka_unit_test_setup_teardown(systems_take_options, runs_setup, runs_teardown),
        cmocka_unit_test_setup_teardown(what_is_missing_is_named, runs_setup, runs_teardown),
    };
    return cmocka_run_group_tests_name("harness/predict/other_system", tests, NULL, NULL);
}
