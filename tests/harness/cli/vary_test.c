/* moeperf predict --vary over clusters, nodes and loads. */
#include "tests/harness/cli/shell.h"

enum { POINTS = 8 };

#define SMALL                                                                                      \
    "--quiet --iterations 4 --set layers=2 --set width=128 --set heads=4 --set expert-width=256 "  \
    "--set sequence=64 "
#define CELLS                                                                                      \
    "--vary cluster=fastermoe-johnny,h100 --vary 'loads=zipf exponent=0.4,two.mptrace' "           \
    "--vary nodes=1,2 "
#define SYSTEMS                                                                                    \
    "--system fssdp --system frugal --system llep --system swiftmoe --system free-balance "

/* A folder with loads of all sources together, which any number of ranks can have. */
static int enter(void **state) {
    int failed = enter_shell(state);
    if (!failed)
        assert_runs("moeperf generate zipf --exponent 0.7 -o two.mptrace --layers 2 --experts 64 "
                    "--ranks 1 --tokens 16384 --iterations 3");
    return failed;
}

/* The same bytes whether one process or several carry it out. */
TEST(cells_are_the_same_bytes_every_time) {
    assert_runs("moeperf predict " SMALL CELLS SYSTEMS "--fit --json > one.json");
    assert_runs("moeperf predict " SMALL CELLS SYSTEMS "--fit --json > two.json");
    assert_runs(
        "taskset -c $(taskset -cp $$ | sed 's/.*: //; s/[-,].*//') moeperf predict " SMALL CELLS
            SYSTEMS "--fit --json > three.json");
    assert_runs("cmp one.json two.json && cmp one.json three.json");
}

/* A cell has what a command of its own says of its cluster, its nodes and its loads, and of four
 * sequences for each of its ranks. */
TEST(a_cell_is_what_it_is_alone) {
    size_t i;
    json_t *item, *cells = json_of("moeperf predict " SMALL CELLS "--fit --system fssdp --json", 0);
    assert_has(cells, "systems/#", "16");
    json_array_foreach(member(cells, "systems"), i, item) {
        const char *loads = text(item, "varied/loads");
        if (i < 8) /* ep */
            continue;
        assert_close(number(item, "model/batch"), 4 * number(item, "model/ranks"), 0);
        const char *kind = strchr(loads, '.') && !strchr(loads, ' ') ? "trace" : "loads";
        AUTO(json)
        json_t *alone = json_of(
            formatted("moeperf predict " SMALL "--fit --system fssdp --json --cluster %s --nodes "
                      "%s --%s '%s'",
                      text(item, "varied/cluster"), text(item, "varied/nodes"), kind, loads),
            0);
        const json_t *own = member(alone, "systems/1");
        static const char *const keys[] = {"ms_per_iteration", "speedup_vs_ep", "bound_ms",
                                           "of_bound", "iterations"};
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            assert_true(number(item, keys[k]) == number(own, keys[k]));
        assert_close(number(item, "iterations"), strstr(loads, "two") ? 3 : 4, 0);
    }
    json_decref(cells);
}

/* What is kept is predicted one after the other, each with the bound on its own conditions. */
TEST(what_is_kept_is_the_same) {
#define BATCHES                                                                                    \
    SMALL "--cluster h100 --loads w0 --system llep --vary batch=64,512 --vary nodes=1,2 "
    static const char *const keys[] = {"bound_ms", "bound_ms_mean", "of_bound", "ms_per_iteration"};
    json_t *one = json_of("moeperf predict --json " BATCHES, 0), *item;
    AUTO(json) json_t *kept = json_of("moeperf predict --json --db kept.db " BATCHES, 0);
    size_t i;
    json_array_foreach(member(one, "systems"), i, item) {
        const json_t *other = json_array_get(member(kept, "systems"), i);
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            assert_true(number(item, keys[k]) == number(other, keys[k]));
        for (size_t before = 0; before < i && i < 4; before++) /* no two of ep's are alike */
            assert_true(number(json_array_get(member(one, "systems"), before), *keys) !=
                        number(item, *keys));
    }
    assert_int_equal(i, 8);
    json_decref(one);
}

/* What is said of a system (0: ep) at a point. */
static const json_t *cell(const json_t *systems, size_t system, size_t point) {
    return json_array_get(systems, system * POINTS + point);
}

static double ms_of(const json_t *systems, size_t system, size_t point) {
    return number(cell(systems, system, point), "ms_per_iteration");
}

/* What the standing of a system should be, from what is said of each point; fssdp is system 1. */
static void check_standing(const json_t *systems, size_t system, const json_t *standing) {
    double shares[POINTS], logs[2] = {0}, fastest = 0, near = 0;
    int bounded = 0, ran = 0;
    assert_string_equal(text(cell(systems, system, 0), "system"), text(standing, "system"));
    for (size_t point = 0; point < POINTS; point++) {
        const json_t *item = cell(systems, system, point);
        double ms = ms_of(systems, system, point), least = INFINITY;
        if (!json_is_null(member(item, "refused")))
            continue;
        for (size_t other = 0; other * POINTS < json_array_size(systems); other++)
            if (!isnan(number(cell(systems, other, point), "of_bound")))
                least = fmin(least, ms_of(systems, other, point));
        ran++;
        for (size_t other = 0; other < 2; other++)
            logs[other] += log(ms_of(systems, other, point) / ms);
        if (isnan(number(item, "of_bound")))
            continue;
        shares[bounded++] = number(item, "of_bound");
        fastest += ms == least;
        near += ms <= 1.01 * least;
    }
    qsort(shares, (size_t)bounded, sizeof *shares, test_compare_doubles);
    assert_close(number(standing, "ran"), ran, 0);
    assert_close(number(standing, "fastest"), fastest, 0);
    assert_close(number(standing, "within_1_percent"), near, 0);
    assert_close(number(standing, "speedup_vs_ep"), exp(logs[0] / ran), 1e-12);
    assert_close(number(standing, "speedup_vs_fssdp"), exp(logs[1] / ran), 1e-12);
    if (!bounded) { /* it drops, or is no system */
        assert_true(json_is_null(member(standing, "of_bound_median")));
        return;
    }
    assert_close(number(standing, "of_bound_worst"), shares[0], 0);
    assert_close(number(standing, "of_bound_median"),
                 (shares[(bounded - 1) / 2] + shares[bounded / 2]) / 2, 1e-12);
}

/* Of a system with all columns: points, share of the bound, the least, fastest, near, vs EP and
 * FSSDP; blanks are single in the table. */
static void check_line(const char *table, const json_t *standing) {
    assert_contains(
        table, formatted("\n%s %.0f %.1f %.1f %.0f %.0f %.3f %.3f\n", text(standing, "system"),
                         number(standing, "points"), 100 * number(standing, "of_bound_median"),
                         100 * number(standing, "of_bound_worst"), number(standing, "fastest"),
                         number(standing, "within_1_percent"), number(standing, "speedup_vs_ep"),
                         number(standing, "speedup_vs_fssdp")));
}

/* Where fssdp pays, in words, is what its points say. */
static void check_range(char *output, const json_t *systems) {
    double least = INFINITY, most = 0;
    char words[160];
    int faster = 0;
    for (size_t point = 0; point < POINTS; point++) {
        double speedup = number(cell(systems, 1, point), "speedup_vs_ep");
        least = fmin(least, speedup);
        most = fmax(most, speedup);
        faster += speedup > 1;
    }
    for (char *c = output; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    snprintf(words, sizeof words, "Faster than ep at %d of %d points: %.2f x at ", faster, POINTS,
             least);
    const char *at = strstr(output, words);
    assert_non_null(at);
    const char *other = strstr(at, formatted(" to %.2f x at ", most));
    assert_true(other && other < strchr(at, '.') + 160);
}

/* And in words as for programs. */
TEST(standings_add_up) {
    size_t i;
    json_t *standing;
    AUTO(text) char *output = shell("moeperf predict " SMALL CELLS SYSTEMS "--fit | tr -s ' '", 0);
    const char *table = strstr(output, "\nOver all points:\n");
    AUTO(json) json_t *cells = json_of("moeperf predict " SMALL CELLS SYSTEMS "--fit --json", 0);
    const json_t *systems = member(cells, "systems");
    assert_has(cells, "standings/#", "6");
    json_array_foreach(member(cells, "standings"), i, standing) {
        assert_close(number(standing, "points"), 8, 0);
        check_standing(systems, i, standing);
        if (!json_is_null(member(standing, "of_bound_median")))
            check_line(table, standing);
    }
    const json_t *one = cell(systems, 0, 0), *two = cell(systems, 0, 1);
    assert_contains(output, formatted("\n%s, %s %.2f %.0f %.2f %.0f\n", text(one, "cluster"),
                                      text(one, "varied/loads"), ms_of(systems, 0, 0),
                                      number(one, "tokens_per_s"), ms_of(systems, 0, 1),
                                      number(two, "tokens_per_s")));
    check_range(output, systems);
}

/* What drops nothing and keeps the gate can be the fastest, also with experts cut into shards. */
TEST(some_system_is_the_fastest_everywhere) {
    AUTO(json)
    json_t *object = json_of("moeperf predict --json " SMALL "--cluster h100 --loads w0 --system "
                             "fastermoe --system tamoe:pull=1 --vary expert-shards=1,2",
                             0);
    assert_close(number(object, "standings/0/fastest") + number(object, "standings/1/fastest"), 2,
                 0);
    assert_has(object, "standings/2/system", "tamoe:pull=1", "standings/2/fastest", "0");
}

/* 24 experts are not shared out evenly over 16 ranks, which fssdp and moonep can do and ep can't;
 * over 8 they are. */
TEST(what_is_refused_ends_nothing) {
    assert_says("moeperf predict " SMALL "--cluster h100 --loads 'zipf exponent=0.5' --set "
                "experts=24 --system fssdp --system moonep --vary nodes=1,2 --vary "
                "top-k=1,2 --set gate=softmax",
                0, "\n2         - ", "%\n", "Over all points:\n", "\nep      2 of 4 ",
                "\nfssdp        4 ", "\nep nodes=2 top-k=1: refused: ",
                LACKS("ep nodes=2 top-k=2: refused")); /* the same reason */
    /* And what turns out only where it is carried out. */
    assert_says("moeperf predict --quiet --cluster h100 --nodes 1 --loads w0 --iterations 1 "
                "--system moetuner --set layers=130 --set experts=4096 --set width=8 --set heads=4 "
                "--set expert-width=8 --set sequence=8 --vary batch=8",
                0, "\nmoetuner batch=8: refused: ");
}

/* Without a number of iterations a trace has all of its own; files of one name keep their folders;
 * what needs more memory than there is has no share of the bound. */
TEST(points_are_what_they_are_called) {
    assert_runs("moeperf generate zipf --exponent 0.7 -o long.mptrace --layers 1 --experts 8 "
                "--ranks 1 --tokens 512 --iterations 33 && mkdir -p other && "
                "cp long.mptrace other");
    assert_json("moeperf predict --quiet --set width=128 --set heads=4 --set expert-width=64 "
                "--set sequence=16 --fit --cluster h100 --nodes 1 --system llep --json "
                "--vary loads=long.mptrace,w0",
                0, "systems/0/iterations", "33", "systems/1/iterations", "30");
    assert_says("moeperf predict " SMALL "--fit --cluster h100 --nodes 1 --system llep "
                "--vary loads=long.mptrace,other/long.mptrace,two.mptrace,w0 "
                "--vary batch=64,4000000 --html points.html",
                0, "\nlong.mptrace ", "\nother/long.mptrace ", "\ntwo.mptrace ", "\nw0 ");
    assert_runs("grep -q '\\[\"w0\",\"4000000 ([0-9]*)\",0.0\\]' points.html");
    assert_runs("grep -q '\\[\"w0\",\"4000000 ([0-9]*)\",null\\]' points.html");
    assert_says("grep -c '\\[\"w0\",\"64 ([0-9]*)\",null\\]' points.html", 1, "0\n");
}

/* Three keys: the last one's values side by side, files by their names; and nothing is wider than
 * a page. */
TEST(rows_name_all_but_the_last_key) {
    assert_runs("mkdir -p folder && cp two.mptrace folder/three.mptrace");
    assert_says("moeperf predict " SMALL "--fit --system fssdp --vary "
                "loads=folder/three.mptrace,w0 --vary cluster=h100,hecate-b "
                "--vary nodes=1,2 --html cells.html",
                0, "Varied, and above with the first value: loads, cluster and nodes.\n",
                "\nfssdp, times as fast as ep, and bound / time, by nodes:\nloads, cluster",
                "\nthree.mptrace, h100 ", "\nw0, hecate-b  ", "\nOver all points:\n", FITS);
    assert_says("moeperf predict " SMALL "--cluster hecate-b --nodes 2 --loads w0 "
                "--vary levels.cluster.bandwidth=25e9,50e9",
                0, "\ncluster\nbandwidth  ", "\n25e9    ", FITS);
    assert_runs("grep -q 'How near to the bound' cells.html");
    assert_says("moeperf predict " SMALL "--vary nodes=1,2 --html gone/x.html", 2,
                "can't write gone/x.html", LACKS("Varied"));
}

/* Loads of which the last iterations say nothing: at most 2 % slower than EP, with every iteration
 * counted, where a copy's way is longest (12.5 GB/s for 8 ranks), and where there is one node. */
TEST(nodewise_survives_wrong_predictions) {
    json_t *cells = json_of("moeperf predict --quiet --iterations 8 --system nodewise "
                            "--set layers=3 --vary cluster=hecate-a,b200 --vary nodes=1,16 "
                            "--vary 'loads=zipf exponent=1 period=1,w6 period=1' --json",
                            0);
    const json_t *systems = member(cells, "systems");
    assert_has(systems, "#", "16");
    for (size_t point = 0; point < POINTS; point++) {
        const json_t *item = cell(systems, 1, point);
        double ms = number(item, "ms_mean"), ep = ms_of(systems, 0, point);
        if (!(ms <= 1.02 * ep))
            fail_msg("%s, %s, %s nodes: %.2f ms, ep %.2f", text(item, "cluster"),
                     text(item, "loads"), text(item, "varied/nodes"), ms, ep);
    }
    json_decref(cells);
}

/* A file that is not there leaves its points out. */
TEST(what_is_not_there_is_left_out) {
    assert_says("moeperf predict " SMALL "--fit --cluster h100 --system fssdp --vary nodes=1,2 "
                "--vary loads=w0,none.mptrace",
                0, "Left out: nodes=1 loads=none.mptrace: ");
    assert_says("moeperf predict " SMALL "--fit --cluster h100 --system fssdp --vary "
                "loads=none.mptrace",
                2, "none.mptrace");
}

TEST_GROUP(enter, leave_folder);
