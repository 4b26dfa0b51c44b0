/* What the reports say about runs whose numbers are known (tests/results/runs.h). */
#include "results/report/groups.h"
#include "results/report/stragglers.h"
#include "tests/results/json.h"
#include "tests/results/report/texts.h"

static int one_run(struct mp_store *store, const struct mp_report_selection *selection,
                   enum mp_report_format format, FILE *out, struct mp_error *error) {
    return mp_report_run(store, selection->run_id, format, out, error);
}

/* What is said of one run; to be freed. */
static char *run_text(const struct runs_folder *folder, int64_t run_id,
                      enum mp_report_format format) {
    return text_of(one_run, folder->store, &(struct mp_report_selection){.run_id = run_id}, format);
}

/* Three rounds of EP and FSSDP on skewed routes and of EP on balanced ones.  FSSDP takes 12 and 15
 * ms in rounds 1 and 2 and fails in round 3. */
static void add_rounds(struct runs_folder *folder) {
    for (int i = 0; i < 9; i++) {
        const int round = i / 3;
        const bool is_fssdp = i % 3 == 1, is_balanced = i % 3 == 2;
        struct mp_store_run run = runs_description(is_fssdp ? "fssdp" : "ep",
                                                   is_balanced ? "balanced" : "skewed 0.70 on 4");
        struct runs_standard as = is_fssdp ? runs_fssdp : is_balanced ? runs_balanced : runs_ep;
        run.model = "2 x 256";
        run.round = round;
        as.drops_nothing = true;
        if (is_fssdp && round == 1)
            as.ms[1] = as.ms[2] = as.ms[3] = 15;
        if (is_fssdp && round == 2) {
            run.status = "failed";
            run.reason = "rank 1 was killed by signal 9";
        }
        runs_add(folder, &run, &as);
    }
}

RUNS_TEST(speedups_are_medians_of_ratios_inside_rounds) {
    add_rounds(folder);
    /* 24 / 12 and 24 / 15, 9 / 12 and 9 / 15; tokens/s 100 per 12 and per 15 ms. */
    assert_text(mp_report_speedup, folder->store, NULL,
                "tiny: skewed 0.70 on 4, gate gshard, 2 x 256, 2 ranks, measured\n"
                "        median    vs      min..max  tokens  vs bal-   final     loss  rounds\n"
                "system   ms/it    EP         ms/it   per s    anced    loss  differs    done\n"
                "ep       24.00  1.00  24.00..24.00    4167     0.38  2.0000  0.0e+00  3 of 3\n"
                "fssdp    13.50  1.80  12.00..15.00    7500     0.68  2.1000  1.0e-01  2 of 3\n"
                "fssdp trains 1.80 x as fast as EP and at 0.68 of EP's speed with balanced routes\n"
                "(median of 2 rounds' ratios, 1.60 to 2.00).\n"
                "Ratios are medians of the rounds' own, not ratios of the medians beside them;\n"
                "over the rounds: fssdp 1.60 to 2.00.\n"
                "fssdp: its loss is EP's within 1e-4 for the first 1 of 4 iterations. Where\n"
                "rounding decides a near tie of the gate differently, two exact runs part;\n"
                "options that change what is computed part them at once.\n"
                "\n"
                "tiny: balanced, gate gshard, 2 x 256, 2 ranks, measured\n"
                "        median    vs    min..max  tokens  vs bal-   final     loss  rounds\n"
                "system   ms/it    EP       ms/it   per s    anced    loss  differs    done\n"
                "ep        9.00  1.00  9.00..9.00   11111     1.00  2.5000  0.0e+00  3 of 3\n"
                "EP alone: the reference for other systems on this setting.\n"
                "\n"
                "Run 8 (fssdp, round 3) failed after 4 of 4 iterations: rank 1 was killed by\n"
                "signal 9.\n");
}

/* The words of the second are the first's, its key is not. */
RUNS_TEST(runs_of_one_setting_share_a_table) {
    static const char *const keys[] = {"a", "b", "a"}, *const systems[] = {"ep", "ep", "fssdp"};
    struct report_runs runs;
    for (int i = 0; i < 3; i++) {
        struct mp_store_run run = runs_description(systems[i], "text");
        run.setting_key = keys[i];
        runs_add(folder, &run, &runs_ep);
    }
    assert_works(report_runs_load(folder->store, NULL, &runs, &error));
    assert_numbers(runs.tables, 2, runs.run[0].table, runs.run[2].table);
    assert_int_not_equal(runs.run[0].table, runs.run[1].table);
    report_runs_free(&runs);
}

/* Appends a number of a whole run, as its rank recorded it. */
static void add_number(struct mp_store *store, const char *name, int64_t run_id, int rank,
                       double value) {
    char sql[512];
    snprintf(sql, sizeof sql,
             "INSERT OR IGNORE INTO StringIds (value) VALUES ('%s'); INSERT INTO number SELECT "
             "%lld, %d, -1, -1, id, %.3f FROM StringIds WHERE value = '%s'",
             name, (long long)run_id, rank, value, name);
    runs_execute(store, sql);
}

/* Others' numbers, of other runs and of single iterations. */
static void add_decoys(struct mp_store *store) {
    runs_execute(store,
                 "INSERT OR IGNORE INTO number SELECT column1, rank, column2, -1, name_id, 9 * "
                 "value FROM number, (VALUES (1, -1), (2, 0), (3, -1)) WHERE run_id = 2");
}

/* Ten iterations of 4 spans on 2 ranks of 3; the rank where a span costs most counts. */
RUNS_TEST(every_report_says_what_recording_cost) {
    const struct mp_report_selection second = {.run_id = 2};
    int cost = 50 + (int)(test_seed() % 900);
    char words[160], lines[200];
    runs_add_usual(folder, "ep", &runs_ep);
    runs_add_uneven(folder, "ep");
    runs_add_usual(folder, "ep", &runs_ep);
    runs_execute(folder->store, "UPDATE run SET ranks = 3, iterations_wanted = 20");
    report reports[] = {mp_report_stragglers_in_full, mp_report_phases};
    for (int i = 0; i < 2; i++) {
        assert_report(reports[i], folder->store, &second,
                      "Recording cost: 80 spans, and the run did not measure what one costs.");
    }
    add_number(folder->store, "record-span-ns", 2, 0, cost - 20);
    add_number(folder->store, "record-span-ns", 2, 1, cost);
    add_decoys(folder->store);
    snprintf(words, sizeof words, "4 spans per iteration at %d ns: %.3f %% of an iteration", cost,
             100 * 4 * cost / 6.5e6);
    snprintf(lines, sizeof lines, "Recording cost: %s.\n", words);
    for (int i = 0; i < 2; i++) {
        assert_report(reports[i], folder->store, &second, lines);
    }
    AUTO(text) char *text = run_text(folder, 2, MP_REPORT_TEXT);
    snprintf(lines, sizeof lines, "recording cost      %s\n", words);
    assert_says(text, lines);
}

/* Of a program that makes NVTX ranges the ranges count, not the spans that rules made of some. */
RUNS_TEST(ranges_of_a_program_have_their_own_cost) {
    const struct mp_report_selection second = {.run_id = 2};
    runs_add_usual(folder, "ep", &runs_ep);
    runs_add_uneven(folder, "ep");
    add_number(folder->store, "nvtx-pair-ns", 2, 0, 100);
    add_number(folder->store, "nvtx-ranges", 2, 0, 1000);
    add_number(folder->store, "nvtx-ranges", 2, 1, 600);
    add_decoys(folder->store);
    assert_report(mp_report_phases, folder->store, &second,
                  "Recording cost: 80 ranges per iteration at 100 ns: 0.123 % of an iteration.");
}

RUNS_TEST(nothing_is_said_of_what_predicting_cost) {
    struct mp_store_run predicted = runs_description("ep", "text");
    predicted.executor = "predicted";
    runs_add(folder, &predicted, &runs_ep);
    report reports[] = {mp_report_stragglers_in_full, mp_report_phases};
    for (int i = 0; i < 2; i++) {
        assert_report(reports[i], folder->store, NULL, LACKS "ecording cost");
    }
}

/* 4 ms for 60 tokens and 2 for 20: of a lower median of 4 / 60 ms a token the 20 beyond the mean of
 * 40 take 1.33 ms; evenly one rank would take 2.67 and the other 3.33 ms, 0.67 less than 4. */
RUNS_TEST(stragglers_are_named_with_tokens_beside_waiting) {
    char expected[2048];
    runs_add_uneven(folder, "ep");
    snprintf(expected, sizeof expected,
             "tiny: text, gate gshard, 2 ranks, measured\n"
             "        waits ms  most  of it                           tokens    would\n"
             "system  per rank   for     ms  why      where           x mean  save ms\n"
             "ep          1.00     0   1.00  routing  layer 0 expert    1.50     0.67\n"
             "ep: rank 1 waits 2.00 ms of each 6.50 ms iteration (31 %%) for rank 0, 100 %% of\n"
             "it from layer 0 expert: it computes 1.50 x the mean tokens there (routing), and\n"
             "what is beyond the mean takes it 1.33 ms. Expert 0 of layer 0 gets most there,\n"
             "75 %% of the layer's routes. It matters in 100 %% of the iterations and is\n"
             "chronic; with even tokens an iteration would take 0.67 ms less (10 %%). A system\n"
             "that spreads tokens over ranks takes this away; which can't be predicted for\n"
             "this run, whose job and loads were not both recorded (--job, --loads of record\n"
             "and import). What even tokens would be worth, says:\n"
             "    moeperf predict --run 1 --without imbalance --db %s\n",
             folder->database);
    assert_text(mp_report_stragglers, folder->store, NULL, expected);
    assert_report(
        mp_report_stragglers_in_full, folder->store, NULL,
        "ep, text, run 1: 2 ranks, 9 of 9 steady iterations\n",
        "Clocks are good to 1.7 us (meetings left too early: 0",
        "parallel 0.77 = load balance 0.83 x\n",
        "S = 1.182 (a mean iteration of 6.50 ms would take",
        "\n   0  6.00   0.00         2.00    0.00         100  routing         60  1.182\n",
        "layer 0 combine     2.00        0.00      2.00      0.50  ",
        "max over mean                      3.000  3.000  3.000  3.000\n",
        "Expert 0 of layer 0 gets most: 75.0 % of",
        "max over mean: expert time 1.33 beside tokens 1.50.\n");
}

/* Where room is short, words stay whole and two columns go. */
RUNS_TEST(a_long_name_leaves_words_whole) {
    runs_add_uneven(folder, "a_system_of_a_name_of_38_characters_it");
    assert_report(mp_report_stragglers, folder->store, NULL,
                  "per rank   for  why      where   save ms\n", "  routing  layer      0.67\n");
}

RUNS_TEST(phases_add_up_to_the_iteration) {
    const struct mp_report_selection second = {.run_id = 2};
    runs_add_usual(folder, "fssdp", &runs_fssdp);
    runs_add_usual(folder, "ep", &runs_ep);
    runs_execute(folder->store,
                 "UPDATE phase_summary SET overlapped_ms = overlapped_ms + 2 * wait_ms");
    assert_text(mp_report_phases, folder->store, &second,
                "ep, text, run 2: mean over its iterations and 2 ranks\n"
                "             ms/it-  share       of it  besides, over-\n"
                "phase       eration      %  blocked ms       lapped ms\n"
                "expert        6.000   22.2       0.000           0.000\n"
                "attention     2.000    7.4       0.000           0.000\n"
                "combine       2.000    7.4       1.000           2.000\n"
                "fetch         0.500    1.9       0.125           0.750\n"
                "(no phase)   16.500   61.1           -               -\n"
                "iteration    27.000  100.0       1.125           2.750\n"
                "validate      2.000      -       0.750           1.500\n"
                "ep: expert takes 22 % of the iteration; ranks are blocked 4 % of it, until\n"
                "others come and by transfers; 2.75 ms of transfers are hidden behind\n"
                "computation.\n"
                "Recording cost: 58 spans, and the run did not measure what one costs.\n");
}

/* Not in the order in which they were first recorded. */
RUNS_TEST(phases_that_take_as_long_stand_by_name) {
    const struct mp_report_selection first = {.run_id = 1};
    runs_add_usual(folder, "ep", &runs_ep);
    runs_add_uneven(folder, "fssdp");
    runs_execute(folder->store, "UPDATE phase_summary SET exposed_ms = 4");
    assert_report(mp_report_phases, folder->store, &first, "\nattention ", "\ncombine ",
                  "\nexpert ", "\nfetch ");
    AUTO(json) json_t *object = json_of(mp_report_phases, folder->store, &first);
    assert_json(object, 0,
                "{'rows': [{'phases': [{'phase': 'attention', 'exposed_ms': 4, 'iterations': 4}, "
                "{'phase': 'combine'}, {'phase': "
                "'expert'}, {'phase': 'fetch'}, {'phase': 'validate'}]}]}");
}

/* A phase in which ranks meet is not blamed for what they wait for. */
RUNS_TEST(a_phase_that_waits_says_so) {
    struct runs_rank rank;
    static const struct runs_span spans[] = {
        {MP_PHASE_ITERATION, MP_NO_DIRECTION, 0, 10000, 0, -1, 50, -1, false},
        {MP_PHASE_EXPERT, MP_FORWARD, 0, 3000, 0, 0, 50, -1, false},
        {MP_PHASE_DISPATCH, MP_FORWARD, 3000, 8000, 5000, 0, 50, -1, false}, /* beyond its end */
    };
    runs_rank_open(folder, 0, 1, &rank);
    runs_record_all(&rank, 0, spans);
    struct mp_store_run run = runs_description("ep", "text");
    run.ranks = 1;
    runs_ingest(folder, &run, &rank, 1);
    assert_report(mp_report_phases, folder->store, NULL, "\n(no phase)    0.000    0.0 ",
                  "\nep: dispatch takes 80 % of the iteration, most of it blocked; ranks are ");
}

/* The second of three, whose ranks failed, with figures that differ by iteration and by rank. */
RUNS_TEST(one_run_is_shown_in_full) {
    struct mp_store_run balanced = runs_description("ep", "balanced");
    struct mp_store_run fssdp = runs_description("fssdp", "text");
    runs_add(folder, &balanced, &runs_balanced);
    runs_add(folder, &fssdp, &runs_fssdp);
    runs_add_usual(folder, "ep", &runs_ep);
    add_number(folder->store, "own", 2, 0, 3);
    add_number(folder->store, "own", 2, 1, 5);
    add_decoys(folder->store);
    runs_execute(
        folder->store,
        "UPDATE imbalance_summary SET experts = 4 + iteration % 2, expert_max_over_mean = "
        "expert_max_over_mean + iteration * iteration, rank_max_over_mean = rank_max_over_mean + "
        "iteration * iteration, effective_experts = effective_experts + iteration * iteration, "
        "dead_fraction = dead_fraction + iteration * iteration / 100.0, dropped_fraction = "
        "dropped_fraction + iteration * iteration / 100.0 WHERE run_id = 2;"
        "UPDATE iteration_summary SET start_ns = 9000000 * iteration + 7000000 * (iteration > 0); "
        "DELETE FROM iteration_summary WHERE run_id = 3 AND iteration = 2;"
        "UPDATE rank SET status = iif(rank, 'failed', 'cut'), reason = 'reason ' || rank;"
        "INSERT INTO rank SELECT run_id, 2, 'complete', '', 0, '', 1, NULL, NULL, 0, 'samples', 0 "
        "FROM run; INSERT INTO fact VALUES (2, 1, 'a', 'b'), (2, 0, 'c', printf('%.200c', 'c')), "
        "(2, 0, 'd', printf('%.201c', 'd'))");
    static const char *const says[] = {
        "Run 2\n",
        "workload            text\n",
        "iterations          4 of 4\n",
        "ms/iteration        12.000\n",
        "\none begins every    9.000 ms, before all ranks have ended the last one\n",
        "expert        6.000   46.2",
        "fssdp: no rank makes the others wait for 3 % of an iteration or more",
        ("    0        5        5.90       5.00       6.09  28.5      8.5\n"
         "    1        5           -          -          -     -        -\n"
         "\nRanks that did not complete\nrank 0 cut: reason 0\nrank 1 failed: reason 1\n"
         "\nNumbers\nown: 5\nranks-share-cores: 0\n\nFacts\na: b\nc:\ncccccccc"),
        "ccc\nenvironment.host (rank 0): first\nenvironment.host (rank 1): second\n"};
    AUTO(text) char *text = run_text(folder, 2, MP_REPORT_TEXT);
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        assert_says(text, says[i]);
    AUTO(text) char *third = run_text(folder, 3, MP_REPORT_TEXT); /* lacks iteration 2 */
    assert_null(strstr(third, "one begins every"));
    AUTO(text) char *all = run_text(folder, 2, MP_REPORT_JSON);
    AUTO(json) json_t *object = json_loads(all, 0, NULL);
    assert_json(
        object, 1e-9,
        "{'iterations': [{'iteration': 0}, {}, {}, {}], 'imbalance': [{}, {'iteration': 0, "
        "'layer': 1}, {}, {}, {}, {}, {}, {}], 'ranks': [{'rank': 0}, {}, {}], 'numbers': [{}, "
        "{}, {}, {}], 'phases': [{'phase': 'expert'}, {}, {}, {}, {}], 'facts': [{}, {}, {}, "
        "{}, {}, {}], 'run': {'run_id': 2, 'ms_per_iteration': 12, 'steady_iterations': 3, "
        "'speedup_vs_ep': 2, 'speed_vs_balanced': 0.75}}");
}

/* Which of its rounds is a group's example, by hand: 30 of 20, 30, 35 and 40 ms, one that failed
 * and three that left nothing; the only one with a time; the last where none has.  Groups and
 * tables are in the order of their first runs. */
RUNS_TEST(examples_are_of_median_time) {
    static const struct {
        const char *system, *job, *workload, *status;
        int ms; /* 0: none */
    } runs[] = {{"ep", "ep", "text", "failed", 50},       {"ep", "ep", "text", "complete", 0},
                {"ep", "ep", "text", "complete", 0},      {"ep", "ep", "text", "complete", 0},
                {"ep", "ep", "text", "complete", 40},     {"ep", "ep", "text", "complete", 20},
                {"ep", "ep", "text", "complete", 35},     {"ep", "ep", "text", "complete", 30},
                {"fssdp", "b", "text", "complete", 12},   {"fssdp", "b", "text", "failed", 0},
                {"other", "c", "text", "failed", 0},      {"x", "ep", "text", "complete", 12},
                {"fssdp", "b", "another", "complete", 9}, {"other", "c", "text", "failed", 0}};
    static const int64_t examples[] = {8, 9, 14, 12, 13};
    struct report_runs loaded;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct mp_store_run run = runs_description(runs[i].system, runs[i].workload);
        struct runs_standard as = runs_ep;
        run.job = runs[i].job;
        run.round = (int)i;
        run.status = runs[i].status;
        as.ms[1] = as.ms[2] = as.ms[3] = runs[i].ms;
        if (runs[i].ms)
            runs_add(folder, &run, &as);
        else
            assert_works(mp_store_ingest(folder->store, &run, NULL, 0, NULL, &error));
    }
    runs_execute(folder->store, "UPDATE run SET suite = 'record' WHERE run_id = 1");
    assert_works(report_runs_load(folder->store, NULL, &loaded, &error));
    assert_numbers(loaded.groups, 5, loaded.tables, 2, loaded.run[0].table, 0);
    for (int g = 0; g < 5; g++)
        assert_int_equal(report_group_example(&loaded, g)->run_id, examples[g]);
    assert_string_equal(report_group_label(&loaded, 1), "fssdp");
    assert_true(loaded.run[0].foreign && !loaded.run[3].foreign);
    report_runs_free(&loaded);
}

/* Of the second of three runs, unlike the others: whether it is on one host, can be replayed, can
 * be planned for, and has marks of others. */
RUNS_TEST(context_is_of_the_run) {
    static const char *const cases[][2] = {
        {"1110", "UPDATE run SET job_text = 'job' WHERE run_id = 2; DELETE FROM load WHERE run_id "
                 "<> 2; UPDATE rank SET host = rank, clock = 'wall clock' WHERE run_id <> 2"},
        {"1110", "INSERT INTO NVTX_EVENTS (start, eventType, run_id, rank) VALUES (0, 34, 1, 0)"},
        {"1111", "UPDATE NVTX_EVENTS SET run_id = 2"},
        {"1101", "UPDATE run SET job_text = iif(run_id = 2, '', 'job')"},
        {"1101", "UPDATE run SET job_text = 'job'; UPDATE load SET run_id = 3"},
        {"0001", "UPDATE load SET run_id = 2; UPDATE rank SET host = rank, clock = 'wall clock'"},
        {"1001", "UPDATE rank SET clock = NULL; UPDATE run SET executor = 'predicted'"}};
    for (int i = 0; i < 3; i++)
        runs_add_usual(folder, "ep", &runs_ep);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct straggler of;
        char found[8];
        runs_execute(folder->store, cases[i][1]);
        assert_works(straggler_find(folder->store, 2, &of, &error));
        snprintf(found, sizeof found, "%d%d%d%d", of.context.one_host, of.context.can_replay,
                 of.context.can_plan, of.context.others);
        assert_string_equal(found, cases[i][0]);
        mp_straggler_destroy(&of.found);
    }
}

RUNS_TEST(the_list_has_a_line_per_run) {
    struct mp_store_run other = runs_description("ep", "text");
    other.suite = "other";
    other.suite_run = "other-1";
    other.executor = "predicted";
    runs_add_usual(folder, "ep", &runs_ep);
    runs_add(folder, &other, &runs_ep);
    assert_text(
        mp_report_runs, folder->store, NULL,
        "                                                                ms/it-\n"
        "run     started (UTC)  suite  job             workload  ranks  eration  status\n"
        "  1  2025-01-31 12:00  tiny   ep              text          2    24.00  complete\n"
        "  2  2025-01-31 12:00  other  ep (predicted)  text          2    24.00  complete\n");
    const struct mp_report_selection selections[] = {
        {.suite = "tiny"}, {.suite_run = "tiny-1"}, {.run_id = 1}};
    for (int i = 0; i < 3; i++) {
        assert_report(mp_report_runs, folder->store, &selections[i], LACKS "other");
        AUTO(json) json_t *object = json_of(mp_report_runs, folder->store, &selections[i]);
        assert_json(object, 1e-4,
                    "{'rows': [{'run_id': 1, 'ms_per_iteration': 24, 'tokens_per_s': 4166.6667, "
                    "'loss_final': 2}]}");
    }
}

/* Without a selection the latest invocation, with one that and no other. */
RUNS_TEST(selections_choose_the_invocation) {
    static const char *const invocations[] = {"tiny-1", "tiny-2", "other-1"};
    for (int i = 0; i < 3; i++) {
        struct mp_store_run run = runs_description("ep", invocations[i]);
        run.suite = i < 2 ? "tiny" : "other";
        run.suite_run = invocations[i];
        runs_add(folder, &run, &runs_ep);
    }
    const struct {
        struct mp_report_selection selection;
        const char *starts;
    } cases[] = {{{0}, "other: other-1,"},
                 {{.suite = "tiny"}, "tiny: tiny-2,"},
                 {{.suite_run = "tiny-1"}, "tiny: tiny-1,"},
                 {{.run_id = 2}, "tiny: tiny-2,"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO(text)
        char *text = text_of(mp_report_speedup, folder->store, &cases[i].selection, MP_REPORT_TEXT);
        assert_ptr_equal(strstr(text, cases[i].starts), text);
        assert_ptr_equal(strstr(text, "tiny:") ? NULL : text, i == 0 ? text : NULL);
    }
}

RUNS_TEST(nothing_selected_is_said) {
    const struct {
        struct mp_report_selection selection;
        const char *says;
    } cases[] = {{{.suite = "nosuch"}, "'nosuch'"},
                 {{.suite_run = "nosuch-1"}, "invocation 'nosuch-1'"},
                 {{.run_id = 42}, "no run 42"},
                 {{0}, "no runs yet"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_fails(
            mp_report_speedup(folder->store, &cases[i].selection, MP_REPORT_TEXT, stdout, &error),
            MP_ENOTFOUND, cases[i].says, folder->database);
    }
    assert_fails(mp_report_run(folder->store, 0, MP_REPORT_TEXT, stdout, &error), MP_ENOTFOUND, "");
}

/* A run without any recording goes through every report. */
RUNS_TEST(a_failed_job_has_no_numbers_and_a_reason) {
    runs_add_unrecorded(folder, "fssdp", "timeout", "no end after 60 s.");
    assert_text(mp_report_speedup, folder->store, NULL,
                "tiny: text, gate gshard, 2 ranks, measured\n"
                "        rounds\n"
                "system    done\n"
                "fssdp   0 of 1\n"
                "There is no complete run of EP on this setting to compare with.\n"
                "\n"
                "Run 1 (fssdp, round 1) ran out of time after 0 of 4 iterations: no end after 60\n"
                "s.\n");
    assert_text(mp_report_phases, folder->store, NULL,
                "fssdp, text, run 1: mean over its iterations and 2 ranks\n"
                "fssdp: no iteration was recorded.\n");
    assert_report(mp_report_stragglers, folder->store, NULL,
                  "fssdp: no steady iteration was recorded by every rank");
    static const report all[] = {mp_report_speedup, mp_report_stragglers, mp_report_phases,
                                 mp_report_runs};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        AUTO(json) json_t *object = json_of(all[i], folder->store, NULL);
        assert_int_equal(json_array_size(json_object_get(object, "rows")), 1);
    }
    free(run_text(folder, 1, MP_REPORT_TEXT));
}

RUNS_TEST(a_yardstick_that_failed_is_one) {
    struct mp_store_run run = runs_description("free-balance", "text");
    run.status = "failed";
    run.reason = "it was not to be";
    run.unattainable = true;
    assert_works(mp_store_ingest(folder->store, &run, NULL, 0, NULL, &error));
    assert_report(
        mp_report_speedup, folder->store, NULL, "\nfree-balance (unattainable)  0 of 1\n",
        "\nRun 1 (free-balance (unattainable), round 1) failed after 0 of 4 iterations: ");
}

RUNS_TEST(systems_that_repeat_go_by_their_jobs) {
    struct mp_store_run run = runs_description("fssdp", "text");
    run.job = "fssdp-m0";
    runs_add(folder, &run, &runs_fssdp);
    run.job = "fssdp-m4";
    runs_add(folder, &run, &runs_fssdp);
    assert_report(mp_report_speedup, folder->store, NULL, "\nfssdp-m0 ", "\nfssdp-m4 ");
}

/* Two rounds of EP, of a system that drops 5 % of the routes, of one that drops none and of a
 * yardstick, which is the fastest of all. */
static void add_field(struct runs_folder *folder, bool shares_cores) {
    static const char *const systems[] = {"ep", "swiftmoe", "fssdp", "free-balance", "ep"};
    static const struct runs_standard drops = {
        .count = 4, .ms = {20, 10, 11, 12}, .loss = {5, 4.4, 3, 2.1}};
    struct runs_standard as[] = {runs_ep, drops, runs_fssdp, runs_balanced, runs_balanced};
    as[2].loss[1] = 4, as[2].loss[3] = 2; /* EP's curve */
    for (int i = 0; i < 10; i++) {
        const int which = i % 5;
        struct mp_store_run run =
            runs_description(systems[which], which == 4 ? "balanced" : "skewed 0.70 on 4");
        run.round = i / 5;
        run.unattainable = which == 3;
        as[which].drops_nothing = which != 1;
        as[which].shares_cores = shares_cores;
        runs_add(folder, &run, &as[which]);
    }
}

/* Where room is short, what says least is left out; the yardstick's name never is. */
RUNS_TEST(yardsticks_are_named_and_droppers_show_what_survives) {
    add_field(folder, false);
    AUTO(text) char *text = text_of(mp_report_speedup, folder->store, NULL, MP_REPORT_TEXT);
    static const char expected[] =
        "tiny: skewed 0.70 on 4, gate gshard, 2 ranks, measured\n"
        "                   median    vs      min..max  vs bal-   final     loss  dropped\n"
        "system              ms/it    EP         ms/it    anced    loss  differs        %\n"
        "ep                  24.00  1.00  24.00..24.00     0.38  2.0000  0.0e+00     0.00\n"
        "swiftmoe            11.00  2.18  11.00..11.00     0.82  2.1000  1.0e-01     5.00\n"
        "fssdp               12.00  2.00  12.00..12.00     0.75  2.0000  0.0e+00     0.00\n"
        "free-balance         9.00  2.67    9.00..9.00     1.00  2.5000  2.5e-01     0.00\n"
        "(unattainable)\n"
        "Of the systems that drop nothing, fssdp trains 2.00 x as fast as EP and at 0.75\n"
        "of EP's speed with balanced routes (median of 2 rounds' ratios, 2.00 to 2.00).\n"
        "swiftmoe drops 5.00 % of the routes and trains 2.18 x as fast as EP with the\n"
        "rest; what is dropped is not learnt from, so its loss is its own.\n"
        "free-balance (unattainable): its loss is EP's within 1e-4 for the first 3 of 4\n"
        "iterations. Where rounding decides a near tie of the gate differently, two exact\n"
        "runs part; options that change what is computed part them at once.\n"
        "free-balance (unattainable) is a yardstick and no system: what it does at no\n"
        "cost takes time on every machine.\n";
    text[sizeof expected - 1] = '\0';
    assert_string_equal(text, expected);
}

RUNS_TEST(every_table_says_unattainable) {
    add_field(folder, false);
    static const report all[] = {mp_report_speedup, mp_report_stragglers, mp_report_phases,
                                 mp_report_runs};
    static const char *const says[] = {"\n(unattainable)\n", "\nfree-balance (unattainable)  ",
                                       "\nfree-balance (unattainable), skewed 0.70 on 4, run 4:",
                                       "\n                              (unattainable)\n"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_report(all[i], folder->store, NULL, says[i]);
        AUTO(json) json_t *object = json_of(all[i], folder->store, NULL);
        json_t *row;
        size_t at;
        json_array_foreach(json_object_get(object, "rows"), at, row) {
            bool yardstick =
                !strcmp(json_string_value(json_object_get(row, "system")), "free-balance");
            const json_t *marked = json_object_get(row, "unattainable");
            assert_non_null(marked);
            assert_int_equal(json_is_true(marked) || json_integer_value(marked) == 1, yardstick);
        }
    }
    AUTO(text) char *text = run_text(folder, 4, MP_REPORT_TEXT);
    assert_says(text, "system              free-balance (unattainable)\n");
    assert_says(text, "\nfree-balance (unattainable): expert takes ");
    assert_says(text, "\nfree-balance (unattainable): no rank makes the others ");
}

/* Ranks that share cores: no ratio, and still what is dropped. */
RUNS_TEST(ranks_that_share_cores_get_no_ratios) {
    add_field(folder, true);
    assert_report(mp_report_speedup, folder->store, NULL, "these wall times are no speed-up",
                  "\nswiftmoe drops 5.00 % of the routes; what is dropped is not learnt from",
                  LACKS "vs\n", LACKS "as fast as");
    AUTO(json) json_t *object = json_of(mp_report_speedup, folder->store, NULL);
    assert_json(object, 0,
                "{'rows': [{}, {'speedup_vs_ep': null, 'ranks_share_cores': true}, {}, {}, {}]}");
}

/* Of more rows than one reads sentences for, there is the table alone. */
RUNS_TEST(long_tables_go_without_sentences) {
    for (int i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "system%d", i);
        runs_add_usual(folder, name, &runs_ep);
        AUTO(text) char *text = text_of(mp_report_stragglers, folder->store, NULL, MP_REPORT_TEXT);
        assert_int_equal(strstr(text, "system0: no rank makes the others") != NULL, i < 5);
        assert_int_equal(
            strstr(text, "\n    moeperf report --stragglers --suite-run tiny-1 --db ") != NULL,
            i >= 5);
        assert_contains(text, name);
    }
}

/* Long and strange names neither break lines nor leave 80 columns. */
RUNS_TEST(tables_fit_80_columns_with_any_name) {
    char name[300];
    memset(name, 'x', sizeof name);
    memcpy(name, "a\"b'\t\n\x1b[31m \xc3\xa9 \xff", 16);
    name[sizeof name - 1] = '\0';
    struct mp_store_run run =
        runs_description(name, "a workload with a long name, longer than any");
    run.suite = "a suite with a very long name indeed, longer than one would want it";
    runs_add(folder, &run, &runs_ep);
    static const report all[] = {mp_report_speedup, mp_report_stragglers, mp_report_phases,
                                 mp_report_runs};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        AUTO(text) char *text = text_of(all[i], folder->store, NULL, MP_REPORT_TEXT);
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
            size_t width = 0;
            for (const char *at = line; *at; at++) {
                assert_true((unsigned char)*at >= 0x20);
                width += ((unsigned char)*at & 0xc0) != 0x80;
            }
            if (width > 80 && strchr(line, ' '))
                fail_msg("%zu columns: %s", width, line);
        }
        json_decref(json_of(all[i], folder->store, NULL));
    }
}

RUNS_TEST(an_output_that_is_full_is_an_error) {
    runs_add_usual(folder, "ep", &runs_ep);
    for (int json = 0; json < 2; json++) {
        FILE *full = fopen("/dev/full", "w");
        assert_non_null(full);
        assert_fails(mp_report_speedup(folder->store, NULL, json ? MP_REPORT_JSON : MP_REPORT_TEXT,
                                       full, &error),
                     MP_ENOSPACE, "");
        fclose(full);
    }
}
