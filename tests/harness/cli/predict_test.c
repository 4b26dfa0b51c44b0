/* moeperf predict, and predicted jobs of suites, as people start them. */
#include "tests/harness/cli/shell.h"

#define SMALL                                                                                      \
    "--cluster fastermoe-johnny --quiet --iterations 6 --set layers=2 --set width=128 "            \
    "--set heads=4 --set experts=32 --set expert-width=256 --set sequence=64 "
#define MOVED SMALL LOADS "--system eplb:interval=4 "
#define LOADS "--loads 'w6 heat=0.4 period=2 seed=9' "

/* ---- the table and the object ---- */

TEST(the_table_says_that_nothing_was_measured) {
    assert_says("moeperf predict " SMALL LOADS, 0,
                "Predicted, not measured: fastermoe-johnny, 16 ranks on 2 nodes",
                "model: layers 2, width 128, heads 4, experts 32 x 256, sequence 64, batch 64",
                "loads: w6 heat=0.4 period=2 seed=9; 6 iterations", "\nep ", "\nfastermoe ",
                "\nfssdp ", "\nnodewise ", "\nbound ", "bound: no system that drops nothing",
                "\nfssdp: its reshard-interval, 100 iterations, is longer than these 6: ",
                "It rests on ", "--assumptions lists them all", FITS);
    assert_says(
        "moeperf predict --assumptions --system fssdp:reshard-interval=6 --nodes 1 " SMALL LOADS, 0,
        "predict.gradient-bytes 2 B", "cluster: nodes 1: as was asked for",
        LACKS("reshard-interval,"));
    AUTO(json) json_t *moved = json_of("moeperf predict --json " MOVED, 0);
    assert_says("moeperf predict " MOVED, 0,
                formatted("\neplb:interval=4: an iteration takes %.4g ms in the mean, ",
                          number(moved, "systems/1/ms_mean")),
                LACKS("\nep: an"), FITS);
    assert_says("moeperf predict " SMALL LOADS "--nodes 1 --vary batch=32,64 --system fssdp "
                "--system fssdp:reshard-interval=6 | grep -c 'reshard-interval,'",
                0, "1\n");
    assert_says("moeperf predict " SMALL LOADS "--system eplb:interval=4 --vary nodes=1,2", 0,
                "\neplb:interval=4 nodes=2: an iteration takes ");
}

TEST(the_object_adds_up) {
    json_t *object = json_of("moeperf predict --json " SMALL LOADS, 0), *item;
    size_t i;
    assert_has(object, "predicted", "true", "systems/#", "7");
    assert_true(json_array_size(member(object, "assumptions")) > 10);
    double ep = number(object, "systems/0/ms_per_iteration"),
           of_ep = number(object, "systems/0/of_bound");
    assert_true(of_ep > 0 && of_ep <= 1);
    json_array_foreach(member(object, "systems"), i, item) {
        double ms = number(item, "ms_per_iteration"), bound = number(item, "bound_ms_mean");
        assert_true(ms > 0);
        assert_close(number(item, "speedup_vs_ep"), ep / ms, 1e-12);
        assert_true(number(item, "bound_ms") > 0 && bound > 0);
        if (!json_is_null(member(item, "of_bound")))
            assert_within(number(item, "of_bound"), bound / number(item, "ms_mean"), 1e-12);
        assert_close(number(item, "exposed_fraction"),
                     number(item, "mean/exposed_seconds") / number(item, "mean/seconds"), 1e-12);
        assert_true(number(item, "memory/total_bytes") > number(item, "memory/dense_bytes"));
        assert_has(item, "iterations", "6", "executor", "predicted");
        assert_close(number(item, "total/routes"), /* all iterations' */
                     6 * 2 * 2 * number(item, "model/batch") * number(item, "model/sequence"), 0);
    }
    json_decref(object);
}

TEST(systems_take_options_and_ep_is_there) {
    assert_json("moeperf predict --json " SMALL LOADS
                "--system fssdp:window=2,overlap=2 --system fssdp "
                "--set options.window=3 --set predict.recompute=full",
                0, "systems/#", "3", "systems/0/job", "ep", "systems/1/job",
                "fssdp:window=2,overlap=2", "systems/1/options/overlap", "2",
                "systems/1/options/window", "3", "systems/1/predict/recompute", "full");
}

/* What a command of its own says of fssdp at a point: "1.23 45%", and how many times as fast as ep
 * it is. */
static double alone(const char *settings, char words[32]) {
    AUTO(json)
    json_t *object =
        json_of(formatted("moeperf predict --json " SMALL LOADS "--system fssdp %s", settings), 0);
    double ratio = number(object, "systems/1/speedup_vs_ep");
    snprintf(words, 32, "%.2f %.0f%%", ratio, 100 * number(object, "systems/1/of_bound"));
    return ratio;
}

TEST(a_grid_is_what_its_points_are_alone) {
    static const char *const points[2][2] = {
        {"--set batch=32 --set 'change=nodes=1 levels.node.bandwidth=5e9'",
         "--set batch=32 --set 'change=nodes=1 levels.node.bandwidth=20e9'"},
        {"--set batch=64 --set 'change=nodes=1 levels.node.bandwidth=5e9'",
         "--set batch=64 --set 'change=nodes=1 levels.node.bandwidth=20e9'"}};
    char cell[2][2][32];
    double ratio[2][2];
    AUTO(text)
    char *output = shell("moeperf predict " SMALL LOADS "--nodes 1 --system fssdp --vary "
                         "batch=32,64 --vary levels.node.bandwidth=5e9,20e9",
                         0);
    for (int r = 0; r < 2; r++) {
        for (int c = 0; c < 2; c++)
            ratio[r][c] = alone(points[r][c], cell[r][c]);
        assert_contains(output, formatted("\n%s  %s  %s\n", r ? "64 (512)      " : "32 (256)      ",
                                          cell[r][0], cell[r][1]));
    }
    assert_true(fabs(ratio[0][0] - ratio[1][1]) > 0.02);
    assert_contains(output,
                    "\nfssdp, times as fast as ep, and bound / time, by levels.node.bandwidth:\n",
                    "Faster than ep at ");
}

TEST(options_of_predictions_are_varied) {
    char words[32];
    double full = alone("--set predict.recompute=full", words);
    AUTO(json)
    json_t *object = json_of("moeperf predict --json " SMALL LOADS "--system fssdp --vary "
                             "predict.recompute=none,full",
                             0);
    assert_has(object, "systems/3/varied/predict.recompute", "full", "systems/3/system", "fssdp");
    assert_close(number(object, "systems/3/speedup_vs_ep"), full, 0);
    assert_true(number(object, "systems/2/speedup_vs_ep") != full);
}

/* One key: systems side by side; what one can't do is a gap with its reason, and what does not fit
 * into memory is said. */
TEST(systems_stand_side_by_side_in_a_grid) {
    assert_says("moeperf predict " SMALL LOADS "--system swiftmoe --system moonep --vary "
                "experts=32,33",
                0, "\nall systems, times as fast as ep, and bound / time:\n",
                "\n33       ep: refused     - ",
                "\nep experts=33: refused: experts: 33 experts can't", LACKS("Left out: "));
    assert_says("moeperf predict " SMALL LOADS "--system moonep --vary batch=32,33", 0,
                "\n33                     -\n", /* no job of anybody's */
                "Left out: job ep batch=33: batch: 33 sequences");
    assert_says("moeperf predict " SMALL LOADS
                "--system moonep --vary batch=32,33 --format csv 2>&1 >left-out.csv",
                0, "Left out: job ep batch=33: ");
    /* The loads' reason is everybody's, and said once. */
    assert_says("moeperf predict " SMALL "--loads 'zipf exponent=1.5' --system moonep --set "
                "gate=softmax --vary top-k=1,8 | grep -o 'Left out'",
                0, "Left out\n", LACKS("Left out\nLeft"));
    assert_says("moeperf predict " SMALL LOADS "--system free-balance --vary batch=32", 0,
                "(unattainable)\n");
    assert_says("moeperf predict " SMALL LOADS "--system llep --vary batch=64,400000,4000000", 0,
                "\n400000 (1600000)    ep: memory\n", "\n4000000 (16000000)      memory\n");
    /* Ranks have as many tokens of a batch as their number says: with others there is none. */
    assert_says("moeperf predict " SMALL LOADS "--system llep --vary nodes=1,2 --vary batch=32,64",
                0, ", by batch:\nnodes ", LACKS("tokens)"));
    /* The same loads, the same time. */
    assert_json("moeperf predict --json " SMALL LOADS
                "--system skeleton --vary 'loads=w0,zipf exponent=1'",
                0, "systems/#", "4", "systems/2/loads", "w0", "systems/2/speedup_vs_ep", "1.0",
                "systems/3/loads", "zipf exponent=1", "systems/3/speedup_vs_ep", "1.0");
}

/* Not a second time by the process that becomes a browser. */
TEST(what_is_printed_before_charts_is_there_once) {
    assert_says("MOEPERF_BROWSER=/bin/true moeperf predict " SMALL LOADS
                "--system llep --vary batch=32 --figures charts | grep -c ^Predicted",
                0, "1\n");
}

/* Exchanges by themselves: small messages gain by fewer of them, large ones don't; and nothing does
 * where messages cost no more than their bytes. */
TEST(exchanges_win_where_messages_are_small) {
    assert_says("moeperf predict --exchanges --cluster tutel --html exchanges.html "
                "--set levels.cluster.message-cost=4e-6",
                0, "\nthe fastest, and how many times as fast as flat\n",
                "\n  1 KiB  deduplicated 1.81  ", "\n  4 MiB               flat  ",
                "\n  1 KiB     1.54     2.96  ", "\nleader, times as fast as flat\n",
                LACKS("\npipelined"), LACKS("save nothing"));
    assert_says("moeperf predict --exchanges --cluster tutel", 0, "larger ones save nothing: ");
    assert_runs("grep -q 'Times as fast as exchange flat' exchanges.html");
    assert_says("moeperf predict --exchanges --cluster tutel --format latex | grep -c caption", 0,
                "4\n");
    json_t *object = json_of("moeperf predict --exchanges --cluster tutel --nodes 4 --json", 0),
           *point;
    size_t i;
    assert_has(object, "points/#", "7");
    json_array_foreach(member(object, "points"), i, point) {
        assert_has(point, "fastest", "flat", "nodes", "4");
        assert_true(number(point, "seconds/flat") < number(point, "seconds/two-level"));
    }
    json_decref(object);
}

TEST(out_of_memory_is_a_result) {
    assert_says("moeperf predict " SMALL LOADS "--system ep --set batch=400000", 0,
                "ep: out of memory: rank ");
    assert_says("moeperf predict " SMALL LOADS "--system ep --set batch=400000 --format csv", 0,
                "out_of_memory\n", ",1\n");
    AUTO(json)
    json_t *object = json_of(
        "moeperf predict --json --db full.db " SMALL LOADS "--system ep --set batch=400000", 0);
    const json_t *memory = member(object, "systems/0/memory");
    assert_has(memory, "out_of_memory", "true");
    assert_true(number(memory, "total_bytes") > number(memory, "limit_bytes"));
    assert_answer("full.db",
                  "SELECT status || ' ' || substr(reason, 1, 20) || ' ' || iterations FROM v_run",
                  "failed out of memory: rank  6");
    assert_answer("full.db", "SELECT count(*) FROM v_speedup WHERE speedup_vs_ep IS NULL", "1");
    assert_says("moeperf report --db full.db", 0, "(ep (predicted), round 1) failed after 6 of 6");
}

/* A system that can't do such a job is a row with its reason, in the order of the command line, and
 * in the database; only where nothing is left of what was asked for it is an error. */
TEST(a_refusal_is_a_row) {
    /* A refused one takes no time at all, and is not faster for it. */
    assert_says("moeperf predict " SMALL LOADS "--set experts=40 --db refused.db", 0,
                "\nep         refused: experts: 40 experts can't be divided evenly over 16 ranks,\n"
                "           which system ep needs; take a multiple of ranks\nfastermoe  ",
                "\nsmartmoe   refused: experts: 40 experts can't be divided evenly over 16 ranks,\n"
                "           which system smartmoe needs; take a multiple of ranks\nswiftmoe  ",
                "\nnodewise ", LACKS("faster still"));
    /* Nor where programs read it: what is not known is nothing, and not 0. */
    assert_says("moeperf predict " SMALL LOADS "--set experts=40 --system llep --format csv", 0,
                ": w6 heat=0.4 period=2 seed=9,,,,,,,\"experts: 40 experts", ",,1.0,,,,,bound,,");
    assert_says("moeperf predict " SMALL LOADS "--vary nodes=1,2 --format csv | "
                "grep -c 'seed=9, nodes=2.*,bound,'",
                0, "1\n");
    assert_answer("refused.db",
                  "SELECT group_concat(job || ' ' || status, ', ') FROM "
                  "(SELECT * FROM v_run ORDER BY run_id LIMIT 4)",
                  "ep refused, fastermoe complete, smartmoe refused, swiftmoe complete");
    assert_says(
        "moeperf report --db refused.db", 0,
        "\nsmartmoe   refused: experts: 40 experts can't be divided evenly over 16 ranks,\n");
    assert_runs("moeperf report --db refused.db --html refused.html");
    assert_says("grep -o '[a-z]*: refused, so it[a-z ]*' refused.html", 0,
                "smartmoe: refused, so it was never started");
    assert_json("moeperf predict --json " SMALL LOADS
                "--set experts=40 --system llep --system smartmoe",
                0, "systems/#", "3", "systems/2/refused",
                ("experts: 40 experts can't be divided evenly over 16 ranks, which system smartmoe "
                 "needs; take a multiple of ranks"),
                "systems/0/ms_per_iteration", "nothing", "systems/1/refused", "null",
                "systems/1/speedup_vs_ep", "null"); /* ep is refused */
    assert_says("moeperf predict " SMALL LOADS "--set experts=40 --system ep", 2,
                "moeperf predict: job ep: experts: 40 experts can't be divided evenly");
    assert_says("moeperf predict " SMALL LOADS
                "--set experts=40 --system skeleton --system smartmoe",
                2, "moeperf predict: job skeleton: experts: 40 experts can't be divided evenly");
}

/* A gate that keeps tokens in their node: less travels between nodes, on an assumption. */
TEST(a_topology_gate_is_predicted) {
    AUTO(json)
    json_t *object = json_of("moeperf predict --json " SMALL LOADS
                             "--system fastermoe --system fastermoe:topology-gate=yes",
                             0);
    AUTO(text) char *assumed = json_dumps(member(object, "assumptions"), 0);
    assert_true(number(object, "systems/2/mean/exchange_seconds") <
                number(object, "systems/1/mean/exchange_seconds"));
    assert_contains(assumed, "fastermoe topology-gate: loads don't say");
}

/* Where it is not worked out, that is said. */
TEST(a_slow_bound_is_for_those_who_ask) {
    static const char *const asked[] = {"", "--bound "};
    for (int i = 0; i < 2; i++)
        assert_says(formatted("moeperf predict --quiet --cluster b200 --nodes 32 --loads balanced "
                              "--set layers=32 --iterations 1 --system llep %s",
                              asked[i]),
                    0, i ? "\nbound: no system " : "\nThe bound would take more than a second",
                    i ? LACKS("would take") : LACKS("\nbound"));
}

/* The bound is on the loads as they are: not on systems with options that change them. */
TEST(who_changes_loads_is_not_bounded) {
    AUTO(json)
    json_t *object = json_of("moeperf predict --json " SMALL LOADS
                             "--system fastermoe --system fastermoe:topology-gate=yes "
                             "--system tamoe:pull=0 --system tamoe",
                             0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(json_is_null(member(object, formatted("systems/%d/of_bound", i))),
                         i == 2 || i == 4);
}

/* A trace says the sizes that are not set; one of another shape is fitted when asked. */
TEST(a_trace_gives_its_shape) {
    assert_runs("moeperf generate zipf -o own.mptrace --exponent 0.5 --ranks 16 --experts 48 "
                "--layers 3 --tokens 192 --iterations 4");
    assert_says("moeperf predict --cluster fastermoe-johnny --quiet --trace own.mptrace "
                "--set sequence=64",
                0, "layers 3, width 768, heads 12, experts 48 x 1536, sequence 64, batch 48",
                "; 4 iterations");
    assert_says("moeperf predict " SMALL "--trace own.mptrace", 2,
                "own.mptrace has 16 ranks, 3 layers, 48 experts", "(--fit");
    assert_says("moeperf predict --cluster fastermoe-johnny --quiet --trace own.mptrace --fit "
                "--set layers=2 --set experts=16 --set sequence=64",
                0, "loads: own.mptrace, fitted; 4 iterations");
    write_file("one.csv", "iteration,layer,rank,e0\n0,0,0,3\n");
    for (int fitted = 0; fitted < 2; fitted++)
        assert_says(formatted("moeperf predict --cluster fastermoe-johnny --trace one.csv%s",
                              fitted ? " --fit" : ""),
                    2, "loads: one.csv has 1 expert, and", "--set gate=switch");
    assert_says("moeperf predict --cluster fastermoe-johnny --trace one.csv --fit --set experts=16",
                2, "source 3 has no routes that could be scaled");
}

/* No zero stands for what was not worked out. */
TEST(a_bound_that_takes_long_is_left_out) {
    assert_says("moeperf predict --cluster h100 --nodes 16 --loads w0 --iterations 1 --set "
                "layers=58 --set experts=256 --set gate=softmax --set top-k=8 --set width=64 --set "
                "heads=1 --set batch=128 --set sequence=32 --system llep --format csv | "
                "grep -c '[0-9],,,[0-9.]*,0$'",
                0, "2\n");
}

/* ---- the database ---- */

TEST(every_view_knows_predictions) {
    static const struct {
        const char *sql, *expected;
    } cases[] = {
        {"SELECT count(*) || ' ' || group_concat(DISTINCT executor) || ' ' || "
         "group_concat(DISTINCT status) || ' ' || sum(ranks_recorded) FROM v_run",
         "3 predicted complete 48"},
        {"SELECT group_concat(job || ' ' || workload, '; ') FROM v_run WHERE system = 'ep'",
         "ep w6 heat=0.4 period=2 seed=9"},
        {"SELECT count(*) FROM v_speedup WHERE executor = 'predicted' AND speedup_vs_ep > 0 "
         "AND tokens_per_s > 0 AND loss_final IS NULL",
         "3"},
        {"SELECT sum(unattainable) FROM v_speedup", "1"},
        {"SELECT count(*) FROM v_iteration WHERE executor = 'predicted' AND ms > 0 AND ranks = 16",
         "18"},
        {"SELECT min(start_ms) FROM v_iteration", "0.0"},
        {"SELECT count(*) > 0 AND min(executor) = 'predicted' AND max(lost_ms) > 0 "
         "FROM v_straggler WHERE phase = 'expert'",
         "1"},
        /* 64 sequences of 64 tokens to 2 experts each */
        {"SELECT count(*) || ' ' || min(routes) || ' ' || max(routes) || ' ' || min(executor) "
         "FROM v_imbalance",
         "36 8192 8192 predicted"},
        {"SELECT count(*) > 5 AND min(executor) = 'predicted' AND sum(exposed_ms) > 0 "
         "FROM v_phase WHERE run_id = 2",
         "1"},
        {"SELECT count(*) > 1000 AND min(start_ns) = 0 FROM v_span", "1"},
        {"SELECT sum(routes) FROM v_load WHERE run_id = 2 AND iteration = 3 AND layer = 1", "8192"},
        {"SELECT count(*) FROM v_number WHERE name = 'memory-bytes' AND value > 0", "3"},
        {"SELECT count(*) > 0 FROM v_number WHERE run_id = 2 AND name = 'copies' AND value > 0",
         "1"},
        {"SELECT count(*) > 10 FROM v_fact WHERE run_id = 1 AND name LIKE 'assumption.%'", "1"},
        {"SELECT count(DISTINCT status) || min(status) FROM v_rank", "1complete"},
    };
    assert_runs("moeperf predict " SMALL LOADS "--db kept.db --system fssdp --system free-balance");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_answer("kept.db", cases[i].sql, cases[i].expected);
    assert_says("moeperf report --db kept.db", 0, "16 ranks, predicted",
                "run 2 (predicted): mean over its iterations");
    assert_says("moeperf report --db kept.db --runs", 0, "ep (predicted)");
    assert_says("moeperf report --db kept.db --run 2", 0, "executor            predicted");
    assert_int_equal(count_entries(".", ".spools"), 0); /* nothing is left */
}

/* The bound's median, and what share of ep's mean the mean is, in all that show them. */
static void assert_bound(const char *command, const json_t *ep) {
    double ms = number(ep, "bound_ms"), of_bound = number(ep, "of_bound");
    assert_true(fabs(ms - number(ep, "bound_ms_mean")) > 0.01); /* or it would say nothing */
    assert_says(command, 0, formatted("\nbound %.2f - ", ms));
    AUTO(json) json_t *report = json_of("moeperf report --db agree.db --json", 0);
    assert_close(number(report, "speedup/rows/0/bound_ms"), ms, 1e-9);
    assert_close(number(report, "speedup/rows/0/of_bound"), of_bound, 1e-5);
    assert_says("moeperf report --db agree.db", 0, formatted(" %.1f ", 100 * of_bound),
                "bound: no system that drops nothing");
    assert_runs(formatted(
        "moeperf report --db agree.db --html bound.html && grep -q '<td>%.1f</td>' bound.html",
        100 * of_bound));
}

/* The table's numbers are those of the database. */
TEST(table_and_database_agree) {
#define AGREE                                                                                      \
    SMALL "--loads dynamics --set iterations=21 --system ep --system swiftmoe --system tamoe"
    AUTO(json) json_t *object = json_of("moeperf predict --json --db agree.db " AGREE, 0);
    const json_t *ep = member(object, "systems/0");
    double ms = number(ep, "ms_per_iteration");
    assert_close(query_number("agree.db",
                              "SELECT median FROM (SELECT ms AS median FROM v_iteration "
                              "WHERE run_id = 1 ORDER BY ms LIMIT 1 OFFSET 10)"),
                 ms, 1e-2 * ms); /* a median of two against one of them */
    assert_close(query_number("agree.db", "SELECT of_bound FROM v_speedup WHERE system = 'ep'"),
                 number(ep, "of_bound"), 1e-5); /* spans are whole ns */
    assert_close(query_number("agree.db", "SELECT bound_ms FROM v_speedup WHERE system = 'ep'"),
                 number(ep, "bound_ms"), 1e-9);
    /* It drops, and is bounded by nothing. */
    assert_answer("agree.db",
                  "SELECT dropped_fraction > 0 AND of_bound IS NULL AND bound_ms IS NULL "
                  "FROM v_speedup WHERE system = 'swiftmoe'",
                  "1");
    assert_answer("agree.db", /* it changes what the gate chose */
                  "SELECT dropped_fraction = 0 AND of_bound IS NULL AND bound_ms IS NULL "
                  "FROM v_speedup WHERE system = 'tamoe'",
                  "1");
    assert_bound("moeperf predict " AGREE " | tr -s ' '", ep);
}

/* ---- suites ---- */

/* Two ranks on one node, like those that train here. */
static void write_pair(void) {
    assert_runs("sed 's/^nodes: {value: 2/nodes: {value: 1/; s/^ranks-per-node: {value: "
                "8/ranks-per-node: {value: 2/' \"$(moeperf list clusters --json | sed -n "
                "'s/.*\"path\": \"\\(.*fastermoe-johnny.yaml\\)\".*/\\1/p')\" > pair.yaml");
}

TEST(measured_and_predicted_stand_side_by_side) {
    write_pair();
    write_file("mixed.yaml",
               SMALL_SUITE("mixed",
                           "iterations: 5, cluster: pair.yaml, routing: skewed, skew-experts: 2",
                           "{name: ep, system: ep}, {name: fssdp, system: fssdp}, {name: ep there, "
                           "system: ep, executor: predicted}, {name: fssdp there, system: fssdp, "
                           "executor: predicted}"));
    assert_says("moeperf run mixed.yaml --db mixed.db --quiet", 0, "4 jobs complete, 0 failed");
    /* the same model and workload, so people can join them; compared only with their own kind */
    assert_answer("mixed.db", "SELECT count(DISTINCT model || workload || gate || ranks) FROM run",
                  "1");
    assert_answer("mixed.db",
                  "SELECT group_concat(executor || ' ' || ep_run_id, ', ') FROM v_speedup",
                  "measured 1, measured 1, predicted 3, predicted 3");
    assert_answer("mixed.db",
                  "SELECT count(*) FROM (SELECT iteration, layer, routes FROM v_imbalance "
                  "WHERE run_id = 1 EXCEPT SELECT iteration, layer, routes FROM v_imbalance "
                  "WHERE run_id = 3)",
                  "0");
    assert_answer("mixed.db",
                  "SELECT count(*) FROM (SELECT iteration, layer, rank, expert, routes FROM v_load "
                  "WHERE run_id = 1 EXCEPT SELECT iteration, layer, rank, expert, routes "
                  "FROM v_load WHERE run_id = 3)",
                  "0"); /* the very same loads */
    assert_says("moeperf predict --cluster pair.yaml --suite mixed.yaml --quiet", 0,
                "loads: skewed 0.70 on 2; 5 iterations");
}

TEST(what_goes_wrong_is_a_row) {
    write_file("wrong.yaml",
               "suite: wrong\n"
               "common: {executor: predicted, cluster: fastermoe-johnny, layers: 2, width: 64,\n"
               "  heads: 4, experts: 32, expert-width: 64, sequence: 64, batch: 32,\n"
               "  iterations: 4, loads: zipf exponent=0.5}\n"
               "jobs:\n"
               "  - {name: good, system: ep}\n"
               "  - {name: mismatch, system: ep, loads: zipf exponent=0.5 tokens=99}\n"
               "  - {name: full, system: ep, batch: 1600000}\n"
               "  - {name: last, system: fssdp}\n");
    assert_says("moeperf run wrong.yaml --db wrong.db", 1,
                "[2/4] mismatch: failed: loads: iteration 0 has 3168 routes",
                "[3/4] full: failed: out of memory: rank ", "2 jobs complete, 2 failed");
    assert_answer("wrong.db", "SELECT group_concat(status || ' ' || iterations, ', ') FROM v_run",
                  "complete 4, failed 0, failed 4, complete 4");
    free(shell("moeperf run wrong.yaml --db late.db --quiet --set loads='zipf exponent=0.5' "
               "--set iterations=100000 --set timeout=0.1 --set batch=32",
               1));
    assert_answer("late.db",
                  "SELECT group_concat(DISTINCT status) || ' ' || (min(iterations) > 0) || ' ' || "
                  "group_concat(DISTINCT reason) FROM v_run",
                  "timeout 1 not done after 0.1 s");
}

/* A delay of one of 32 ranks that do not exist comes back from the analysis with rank and cause. */
TEST_RANDOM(injected_delays_are_found_in_predictions) {
    static const struct {
        const char *phase, *cause;
    } cases[] = {{"expert", "slow rank"}, {"dispatch", "slow link"}, {"attention", "slow rank"}};
    for (int i = 0; i < 3; i++) {
        char place[16];
        int rank = test_random_int(random, 0, 31), ms = test_random_int(random, 5, 50);
        write_file("injected.yaml",
                   formatted("suite: injected\n"
                             "common: {executor: predicted, cluster: hecate-b, layers: 2, width: "
                             "512,\n"
                             "  heads: 4, experts: 32, expert-width: 1024, sequence: 512, batch: "
                             "64,\n"
                             "  iterations: 12, loads: zipf exponent=0.0}\n"
                             "jobs: [{system: ep, inject: rank=%d phase=%s seconds=0.%03d}]\n",
                             rank, cases[i].phase, ms));
        remove("injected.db");
        assert_runs("moeperf run injected.yaml --db injected.db --quiet");
        snprintf(place, sizeof place, "%d", rank);
        assert_json("moeperf report --db injected.db --stragglers --json", 0,
                    "rows/0/analysis/findings/0/rank", place, "rows/0/analysis/findings/0/cause",
                    cases[i].cause, "rows/0/recording_cost", "null");
        assert_answer("injected.db", /* two layers, both ways */
                      formatted("SELECT avg(ms) > %d FROM v_iteration", 4 * ms), "1");
    }
    assert_says("moeperf run injected.yaml --db refused.db --set inject='rank=32 phase=expert "
                "seconds=1'",
                2, "inject: rank 32 of a job with 32 ranks");
    assert_says("moeperf run injected.yaml --db refused.db --set inject='rank=0 phase=data "
                "seconds=1'",
                2, "inject: phase data is not predicted");
}

TEST(the_ready_made_suite_is_quick) {
    assert_says("moeperf run predicted --db ready.db --quiet --set iterations=3", 0,
                " jobs complete, 0 failed");
    assert_says("moeperf show predicted", 0, "executor: predicted");
    assert_says("moeperf list suites", 0, "every system, predicted on two nodes");
}

/* ---- bad input ---- */

#define WISH "moeperf predict --cluster hecate-b "

TEST(bad_wishes_leave_nothing) {
    static const struct refused_line cases[] = {
        {"moeperf predict --loads zipf", "cluster: not given"},
        {"moeperf predict --cluster hecat-b --loads zipf", "did you mean \"hecate-b\"?"},
        {WISH, "loads: not given"},
        {WISH, "a generator (--loads TEXT), or"},
        {"moeperf predict --loads w0", "--cluster with the name of one (moeperf list clusters)"},
        {WISH "--loads zipf --trace x", "give one of them"},
        {WISH "--trace gone.mptrace",
         "moeperf predict: --trace gone.mptrace: No such file or directory; it takes a file"},
        {WISH "--loads w0 --iterations 0", "--iterations 0: should be a whole number from 1 to"},
        {WISH "--loads w0 --nodes 0", "--nodes 0: should be a whole number from 1 to 1048576"},
        {WISH "--loads w0 --system fsdp", "did you mean \"fssdp\"?"},
        {WISH "--loads w0 --system fssdp:overlp=1", "did you mean \"overlap\"?"},
        {WISH "--loads w0 --system fssdp:overlap", "\"overlap\" should be option=value"},
        {WISH "--loads w0 --system ep --system ep", "moeperf predict: --system ep: given twice"},
        {WISH "--loads w0 --set predict.precison=fp32", "did you mean \"precision\"?"},
        {WISH "--suite skewd", "did you mean \"skewed\"?"},
        {WISH "--suite skewed --system ep", "--system and --suite"},
        {WISH "--loads w0 --vary batch", "should be KEY=VALUE"},
        {WISH "--loads w0 --vary batch=32,,64", "a value is missing"},
        {WISH "--loads w0 --vary nodes=1 --vary batch=x", "predict: --vary: batch: \"x\" is no"},
        {WISH "--loads w0 --vary batch=32 --vary nodes=x,y", "predict: --vary: nodes: \"x\" is no"},
        {WISH "--loads w0 --vary btch=32", "predict: --vary: unknown option \"btch\""},
        {WISH "--loads w0 --vary top=1 --set top-l=3", "predict: --set: unknown option \"top-l\""},
        {WISH "--loads w0 --vary batch=8 --set batch=x", "predict: --set: batch: \"x\" is no"},
        {WISH "--loads w0 --vary batch=32,64,32", "the same value twice"},
        {WISH "--loads w0 --vary batch=32 --vary batch=64", "--vary batch: given twice"},
        {WISH "--loads w0 --vary batch=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
         "more than 16 values"},
        {WISH "--loads w0 --vary layers=1,2 --vary batch=1,2,3,4,5,6,7,8,9,10,11,12",
         "--vary batch: the values of the last key stand side by side"},
        {WISH "--loads w0 --vary batch=1 --vary layers=1 --vary width=1 --vary experts=1",
         "at most 3 keys"},
        {WISH "--loads w0 --vary options.memory=1,2", "--system NAME:OPTION=VALUE"},
        {WISH "--loads w0 --vary predict.foo=1,2", "--vary: unknown option \"foo\" for predict"},
        {WISH "--loads w0 --vary layer=1,2", "did you mean \"layers\"?"},
        {WISH "--loads w0 --vary levels.nod.bandwidth=1e9", "the name of a level of"},
        {WISH "--suite skewed --vary batch=1", "--vary and --suite"},
        {WISH "--loads w0 --html x.html", "--html and --figures draw what --vary"},
        {"moeperf predict --exchanges", "--cluster: not given; moeperf list clusters"},
        {"moeperf predict --exchanges --cluster tutel --set batch=8",
         "unknown option \"batch\" for a cluster"},
        {"moeperf predict --exchanges --cluster tutel --loads w0", "--loads"},
        {"moeperf predict --exchanges --cluster tutel --nodes 0", "nodes: 0 is outside"},
        {"moeperf predict " SMALL LOADS "--db words", "words"},
        {"moeperf predict " SMALL LOADS "--db /proc/none/x.db", "/proc/none"},
        {"moeperf run forgot.yaml --db bad.db",
         "forgot.yaml:4: job ep has a cluster or loads, which are for predictions"},
        {"moeperf run unknown.yaml --db bad.db",
         "unknown.yaml:3: job ep: no ready-made cluster is called \"h10\""},
    };
    write_file("forgot.yaml", "suite: forgot\ncommon: {cluster: h100, text: default}\njobs:\n"
                              "  - {system: ep}\n");
    write_file("unknown.yaml", "suite: unknown\njobs:\n"
                               "  - {system: ep, executor: predicted, cluster: h10, loads: w0}\n");
    assert_refused(cases);
    assert_runs("test -e bad.db && test \"$(moeperf report --runs --db bad.db 2>&1)\" = "
                "'moeperf report: bad.db: no such runs' || test ! -e bad.db");
    assert_int_equal(count_entries(".", ".spools"), 0);
}

TEST_GROUP(enter_shell, leave_folder);
