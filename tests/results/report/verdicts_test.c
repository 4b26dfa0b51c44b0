/* What a report concludes, and when it does not: busy machines, ratios that their rows seem to
 * contradict, shares, hosts. */
#include "results/report/speedup.h"
#include "tests/results/json.h"
#include "tests/results/report/texts.h"

/* EP in peace and FSSDP beside other programs: said once it is more than a machine's usual noise,
 * before who is faster, and not where ranks took turns on purpose. */
RUNS_TEST(a_busy_machine_is_said_first) {
    const struct {
        double taken;
        bool shares_cores, said, praised, drops;
    } cases[] = {{0.04, false, false, true, false},
                 {0.62, false, true, false, false},
                 {0.62, false, true, false, true},
                 {0.62, true, false, false, false}};
    for (int i = 0; i < 4; i++) {
        struct mp_store_run ep = runs_description("ep", "text");
        struct mp_store_run fssdp = runs_description("fssdp", "text");
        char name[16];
        snprintf(name, sizeof name, "invocation-%d", i);
        ep.suite_run = fssdp.suite_run = name;
        struct runs_standard quiet = runs_ep, run = runs_fssdp;
        quiet.taken = cases[i].taken / 2;
        run.taken = cases[i].taken;
        run.drops_nothing = quiet.drops_nothing = !cases[i].drops;
        run.shares_cores = cases[i].shares_cores;
        runs_add(folder, &ep, &quiet);
        runs_add(folder, &fssdp, &run);
        AUTO(text) char *text = text_of(mp_report_speedup, folder->store, NULL, MP_REPORT_TEXT);
        assert_int_equal(strstr(text, "The machine was busy: for up to 62 % of the time (fssdp)") ==
                             text,
                         cases[i].said);
        if (cases[i].said)
            assert_says(text, "runs.\n\ntiny: text");
        assert_int_equal(strstr(text, "x as fast") != NULL, cases[i].praised);
        AUTO(json) json_t *object = json_of(mp_report_speedup, folder->store, NULL);
        json_t *rows = json_object_get(object, "rows");
        assert_close(number_at(json_array_get(rows, 0), "processor_taken"), cases[i].taken / 2,
                     1e-9);
        assert_close(number_at(json_array_get(rows, 1), "processor_taken"), cases[i].taken, 1e-9);
    }
}

/* Two rounds of EP and of another system whose ratios are 2 and 0.5: their median is 1.25, the
 * medians of the times give (20 + 40) / (10 + 80) = 0.67. */
RUNS_TEST(ratios_come_with_their_rounds) {
    static const int ms[2][2] = {{20, 40}, {10, 80}};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2; i++) {
            struct mp_store_run run = runs_description(i ? "fssdp" : "ep", "text");
            struct runs_standard standard = {.count = 2, .drops_nothing = true, .loss = {5, 4}};
            run.round = round;
            standard.ms[0] = standard.ms[1] = ms[i][round];
            runs_add(folder, &run, &standard);
        }
    assert_text(mp_report_speedup, folder->store, NULL,
                "tiny: text, gate gshard, 2 ranks, measured\n"
                "        median    vs    min..max      min..max  tokens   final     loss  rounds\n"
                "system   ms/it    EP       vs EP         ms/it   per s    loss  differs    done\n"
                "ep       30.00  1.00  1.00..1.00  20.00..40.00    3750  4.0000  0.0e+00  2 of 2\n"
                "fssdp    45.00  1.25  0.50..2.00  10.00..80.00    5625  4.0000  0.0e+00  2 of 2\n"
                "fssdp trains 1.25 x as fast as EP (median of 2 rounds' ratios, 0.50 to 2.00).\n"
                "Ratios are medians of the rounds' own, not ratios of the medians beside them;\n"
                "over the rounds: fssdp 0.50 to 2.00.\n");
    AUTO(json) json_t *object = json_of(mp_report_speedup, folder->store, NULL);
    assert_json(object, 1e-9,
                "{'rows': [{}, {'speedup_vs_ep': 1.25, 'speedup_vs_ep_min': 0.5,"
                " 'speedup_vs_ep_max': 2}]}");
}

/* Ten iterations of 3 ms.  The exchange of rank 0 takes 1 ms longer than rank 1's, and 800 ms in
 * one of them. */
static void add_exchanges(struct runs_folder *folder, const char *host, double taken) {
    struct mp_store_run run = runs_description("ep", "text");
    struct runs_rank ranks[2];
    int64_t run_id;
    for (int r = 0; r < 2; r++) {
        int64_t at = 0;
        runs_rank_open(folder, r, 2, &ranks[r]);
        for (int i = 0; i < 10; i++) {
            int64_t longer = i == 5 ? 800000 : 1000, wait = r ? 1000 : longer + 1000;
            const struct runs_span spans[] = {
                {MP_PHASE_DISPATCH, MP_FORWARD, at, wait, wait, 0, -1, -1, false},
                {MP_PHASE_COMBINE, MP_FORWARD, at + wait, longer + 2000 - wait,
                 longer + 2000 - wait, 0, -1, -1, false},
                {MP_PHASE_ITERATION, MP_NO_DIRECTION, at, longer + 2000, 0, -1, 100, -1, false},
            };
            runs_record_all(&ranks[r], i, spans);
            at += longer + 3000;
        }
        if (taken > 0) {
            mp_record_number(ranks[r].compute, -1, -1, "training-seconds", 10);
            mp_record_number(ranks[r].compute, -1, -1, "processor-wait-seconds", 10 * taken);
        }
        runs_clock_samples(&ranks[r]);
    }
    run_id = runs_ingest(folder, &run, ranks, 2);
    char sql[256];
    snprintf(sql, sizeof sql,
             "UPDATE rank SET host = CASE rank WHEN 0 THEN 'first' ELSE '%s' END "
             "WHERE run_id = %lld",
             host, (long long)run_id);
    runs_execute(folder->store, sql);
}

/* Of nine steady iterations eight have 1 ms of waiting in 3 ms and one 800 in 802: means of 89.78
 * and 91.78 ms.  The median is 3 ms. */
RUNS_TEST(shares_are_of_the_mean_iteration) {
    add_exchanges(folder, "second", 0);
    assert_report(mp_report_stragglers, folder->store, NULL,
                  "ep: rank 1 waits 89.78 ms of each 91.78 ms iteration (98 %) for rank 0");
}

/* Experts for 4 ms (rank 0: 6), then nothing for 5 (3) and an exchange of 1. */
RUNS_TEST(who_waits_outside_phases_is_not_known) {
    struct runs_rank ranks[2];
    const struct mp_store_run run = runs_description("ep", "text");
    for (int r = 0; r < 2; r++) {
        runs_rank_open(folder, r, 2, &ranks[r]);
        for (int i = 0; i < 8; i++) {
            const int64_t at = 10000 * i;
            const struct runs_span spans[] = {
                {MP_PHASE_ITERATION, MP_NO_DIRECTION, at, 10000, 0, -1, -1, -1, false},
                {MP_PHASE_EXPERT, MP_FORWARD, at, r ? 4000 : 6000, 0, 0, 50, -1, false},
                {MP_PHASE_COMBINE, MP_FORWARD, at + 9000, 1000, 1000, 0, -1, -1, false}};
            runs_record_all(&ranks[r], i, spans);
        }
        runs_clock_samples(&ranks[r]);
    }
    runs_ingest(folder, &run, ranks, 2);
    assert_report(mp_report_stragglers, folder->store, NULL,
                  "0.00 ms of 10.00 ms. 50 % of an iteration of rank 1 lie outside all phases,\n"
                  "where waiting can't be seen.\n");
}

RUNS_TEST(one_host_has_no_network) {
    static const struct {
        const char *host;
        double taken;
        const char *says, *says_not;
    } cases[] = {
        {"second", 0, "Look at its links", "on one host"},
        {"first", 0, "All ranks are on one host, so no", "nothing else runs"},
        {"first", 0.4, "other programs had the processors for up to 40 %", "links"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct mp_report_selection selection = {.run_id = (int64_t)i + 1};
        add_exchanges(folder, cases[i].host, cases[i].taken);
        AUTO(json)
        json_t *object = json_of(mp_report_stragglers_in_full, folder->store, &selection);
        json_t *row = json_array_get(json_object_get(object, "rows"), 0);
        row = json_object_get(json_object_get(row, "analysis"), "findings");
        row = json_array_get(row, 0);
        assert_string_equal(json_string_value(json_object_get(row, "cause")), "slow link");
        assert_says(json_string_value(json_object_get(row, "advice")), cases[i].says);
        assert_null(strstr(json_string_value(json_object_get(row, "advice")), cases[i].says_not));
    }
}

/* Of three rounds with 2, 4 and 1 of everything and one that failed.  Where one of the rounds has
 * no loss to compare, none is said of all. */
TEST(rows_are_of_complete_rounds) {
    static const double values[] = {2, 4, 1, 8};
    struct report_run run[4];
    struct report_runs runs = {.count = 4, .groups = 1, .tables = 1, .run = run};
    struct speedup_row *row;
    int count;
    for (int i = 0; i < 4; i++) {
        const double value = values[i];
        run[i] = (struct report_run){.complete = i < 3,
                                     .ms_per_iteration = value,
                                     .tokens_per_s = value,
                                     .speedup_vs_ep = value,
                                     .loss_final = value,
                                     .max_loss_difference = value,
                                     .iterations_agreed = value,
                                     .dropped = value,
                                     .ms_p99 = value,
                                     .bound_ms = value,
                                     .of_bound = value,
                                     .s_to_target = value,
                                     .taken = value};
    }
    assert_works(speedup_rows(&runs, 0, &row, &count, &error));
    assert_numbers(row->ms, 2, row->p99, 2, row->tokens_per_s, 2, row->speedup, 2, row->loss_final,
                   2, row->dropped, 2, row->bound_ms, 2, row->of_bound, 2, row->s_to_target, 2);
    assert_numbers(row->ms_min, 1, row->ms_max, 4, row->speedup_min, 1, row->speedup_max, 4,
                   row->loss_difference, 4, row->agreed, 1, row->taken, 8);
    free(row);
    run[0].max_loss_difference = NAN;
    assert_works(speedup_rows(&runs, 0, &row, &count, &error));
    assert_true(isnan(row->loss_difference));
    free(row);
}
