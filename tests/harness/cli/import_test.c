/* Recordings of other tools, imported: the planted culprit is what the report names. */
#include "tests/harness/cli/annotated.h"
#include "tests/harness/recordings/kineto.h"

static struct kineto_job planted(void) {
    return (struct kineto_job){.annotated = true,
                               .named_hosts = true,
                               .steps = 12,
                               .slow_rank = 1,
                               .slow_layer = 1,
                               .slow_ns = 4000000,
                               .base_ns = 1790000000000000000};
}

static void start_anew(void) {
    assert_runs("rm -f *.json *.json.gz *.csv *.db");
}

/* A trace of this job alone in the folder, imported, which says so. */
static void import(const struct kineto_job *kineto, const char *says) {
    start_anew();
    kineto_write(kineto, "");
    assert_says("moeperf import rank*.json --db run.db", 0, says);
}

#define REPORT "moeperf report --db run.db --stragglers | tr -s ' \\n' ' '"
#define CULPRIT                                                                                    \
    "each other rank waits 4.00 ms of each 23.60 ms iteration (17 %) for rank 1, rank 0 most "     \
    "(4.00 ms), 100 % of it from layer 1 expert: "                                                 \
    "it takes 4.00 ms longer per iteration at the same tokens (slow rank)"

/* As many, long and large as they were planted, in both directions. */
static void assert_experts_are_whole(void) {
    assert_run("SELECT group_concat(n) FROM (SELECT count(*) || ' ' || min(end_ns - "
               "start_ns) || ' ' || max(layer) || ' ' || min(tokens) AS n FROM v_span "
               "WHERE phase = 'expert' GROUP BY direction ORDER BY direction)",
               "72 6000000 1 64,72 3000000 1 64");
}

TEST(the_slow_rank_of_a_trace_is_named) {
    const struct kineto_job job = planted();
    start_anew();
    kineto_write(&job, ".gz");
    assert_says("moeperf import rank*.json.gz --db run.db", 0,
                "clocks: all processes have one host's", LACKS("called dispatch"));
    assert_says(REPORT, 0, CULPRIT);
    assert_experts_are_whole();
    assert_run("SELECT count(*) || ' ' || min(iteration) || ' ' || max(iteration) FROM v_iteration",
               "12 3 14");
    assert_run("SELECT count(DISTINCT ordinal) || ' ' || min(communicator_size) || ' ' "
               "|| count(wait_ms) || ' ' || min(bytes) FROM v_collective",
               "96 3 288 4000");
    /* Again: nothing is added. */
    assert_says("moeperf import rank*.json.gz --db run.db --system mine", 0, "run 1 of run.db: ",
                "run 1 was there already, as system pytorch, workload recorded: nothing is added, "
                "and it keeps these names; another database (--db FILE)");
    assert_run("SELECT count(*) || min(system) FROM run", "1pytorch");
    /* Again, with the sizes of the model: another run, and not only a sentence. */
    write_file("job.yaml", "system: ep\nranks: 3\n");
    assert_says("moeperf import rank*.json.gz --db run.db --job job.yaml", 0, "run 2 of run.db");
    assert_says("moeperf import rank*.json.gz --db run.db", 0, "run 1 was there already");
    assert_says("moeperf import rank*.json.gz --db new.db --system mine", 0, LACKS("already"));
    /* The last one's file is missing. */
    assert_says("moeperf import rank0.json.gz rank1.json.gz --db part.db", 0,
                "rank 2: no recording");
    assert_answer("part.db", "SELECT group_concat(status) FROM v_rank",
                  "complete,complete,missing");
    assert_answer("part.db", "SELECT count(*) || ' ' || count(wait_ms) FROM v_collective", "192 0");
}

/* The host's ranges take 20 us each, wherever the time went. */
TEST(a_gpu_s_time_counts) {
    struct kineto_job job = planted();
    job.on_gpu = true;
    import(&job, "clocks: all processes have one host's");
    assert_says(REPORT, 0, CULPRIT);
    assert_experts_are_whole();
    assert_run("SELECT group_concat(n) FROM (SELECT count(*) || ' ' || min(end_ns - start_ns) "
               "|| ' ' || max(end_ns - start_ns) AS n FROM v_span WHERE phase = 'combine' GROUP "
               "BY direction)",
               "72 200000 200000,72 200000 4200000");
    assert_run("SELECT sum(kernels) || ' ' || round(sum(gpu_ms)) FROM v_gpu WHERE phase = 'expert'",
               "216 696.0");
    assert_run("SELECT count(*) || ' ' || count(wait_ms) || ' ' || min(bytes) || ' ' || "
               "round(max(wait_ms), 3) FROM v_collective",
               "288 288 4000 4.0");
}

TEST(who_waits_is_known_without_annotations) {
    struct kineto_job job = planted();
    job.annotated = false;
    import(&job, "all 288 are called dispatch and counted as layers");
    assert_says(REPORT, 0,
                "(17 %) for rank 1, rank 0 most (4.00 ms), 100 % of it from layer 3 dispatch");
    assert_run("SELECT count(*) || ' ' || count(DISTINCT layer) || ' ' || max(layer) || ' ' || "
               "sum(wait_ns > 0) FROM v_span WHERE phase = 'dispatch' AND direction = 'backward'",
               "144 4 3 144");
    assert_run("SELECT count(*) FROM v_span WHERE stream = 'comm'", "0");
    /* The same by operators, which have the way back of what is around them. */
    write_file("my.yaml",
               "rules:\n  - {name: AllToAll, phase: dispatch, layer: count, waits: all}\n"
               "  - {name: 'ProfilerStep#{iteration}', phase: iteration}\n");
    assert_runs("moeperf import rank*.json --db my.db --rules my.yaml");
    assert_answer("my.db",
                  "SELECT group_concat(n) FROM (SELECT count(*) || ' ' || max(layer) || ' ' || "
                  "direction AS n FROM v_span WHERE phase = 'dispatch' GROUP BY direction)",
                  "144 3 backward,144 3 forward");
}

/* As transformers' experts are: the module exchanges, computes and exchanges, all by calls that
 * only begin an exchange, and the slow rank is slow inside.  Who comes last finds its exchange over
 * and does not wait, yet all take part in it, forward and backward. */
TEST(modules_may_hold_their_exchanges) {
    struct kineto_job job = planted();
    job.annotated = false;
    job.functional = true;
    import(&job, "3 processes");
    assert_says(REPORT, 0,
                "(17 %) for rank 1, rank 0 most (4.01 ms), 100 % of it from layer 1 expert: it "
                "takes 4.02 ms longer per iteration at the same tokens (slow rank)");
    assert_run("SELECT group_concat(n) FROM (SELECT layer || ' ' || count(*) || ' ' || "
               "count(DISTINCT layer) || ' ' || min(wait_ns > 0) AS n FROM v_span WHERE phase = "
               "'dispatch' AND direction = 'forward' AND stream = 'compute' GROUP BY layer)",
               "0 72 1 1,1 72 1 1");
    assert_run("SELECT count(*) || ' ' || count(layer) || ' ' || min(wait_ns) FROM v_span WHERE "
               "phase = 'dispatch' AND direction = 'backward' AND stream = 'compute'",
               "144 144 200000");
}

/* A thread goes on after its call and the exchange is over before it comes to wait: it was in the
 * exchange up to its next work that counts.  What it asks for and never waits for is none, whatever
 * else it waits for meanwhile.  Times are since the first range's, at 106 us. */
TEST(exchanges_may_be_over_before_they_are_waited_for) {
    static const struct {
        const char *category, *name;
        int thread, start, end; /* us */
    } events[] = {{"cpu_op", "c10d::alltoall_base_", 1, 100, 105},
                  {"user_annotation", "gloo:all_to_all", 2, 106, 200},
                  {"cpu_op", "aten::view", 1, 110, 112},
                  {"cpu_op", "_c10d_functional::wait_tensor", 1, 120, 130},
                  {"cpu_op", "c10d::allreduce_", 1, 300, 305},
                  {"user_annotation", "gloo:all_reduce", 2, 306, 360},
                  {"cpu_op", "_c10d_functional::wait_tensor", 1, 310, 360},
                  {"cpu_op", "c10d::alltoall_base_", 1, 400, 405},
                  {"user_annotation", "gloo:all_to_all", 2, 406, 500},
                  {"cpu_op", "aten::view", 1, 410, 412},
                  {"user_annotation", "layer 0 expert", 1, 450, 490},
                  {"cpu_op", "_c10d_functional::wait_tensor", 1, 550, 555}};
    start_anew();
    FILE *trace = fopen("rank0.json", "w");
    fputs("{\"schemaVersion\": 1, \"traceEvents\": [", trace);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        fprintf(trace,
                "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": 1, \"tid\": %d, "
                "\"ts\": %d, \"dur\": %d}",
                i ? ",\n" : "", events[i].category, events[i].name, events[i].thread,
                events[i].start, events[i].end - events[i].start);
    fputs("]}", trace);
    fclose(trace);
    assert_runs("moeperf import rank0.json --db run.db");
    assert_run("SELECT group_concat(name || ' ' || (start_ns % 1000000 / 1000) || '-' || "
               "(end_ns % 1000000 / 1000), ', ') FROM (SELECT * FROM v_nvtx WHERE domain = "
               "'waits' ORDER BY start_ns)",
               "gloo:all_reduce 204-254, gloo:all_to_all 294-344");
    /* What it did not wait for from its call on is in flight beside it, too. */
    assert_run("SELECT group_concat(name) FROM (SELECT * FROM v_nvtx WHERE name LIKE 'gloo%' AND "
               "coalesce(domain, '') <> 'waits' ORDER BY start_ns)",
               "gloo:all_to_all,gloo:all_reduce");
}

/* One rank's profiler begins later than the others' first exchange: what it has no call of is still
 * an operation, and NCCL's have numbers. */
TEST(ranks_may_begin_late) {
    struct kineto_job job = planted();
    job.late = true;
    job.annotated = false;
    import(&job, "3 processes");
    assert_run("SELECT min(wait_ns) || ' ' || count(*) FROM v_span WHERE phase = 'dispatch' AND "
               "stream = 'compute' AND rank = 2",
               "200000 95");
    job.on_gpu = true;
    import(&job, "3 processes");
    assert_run("SELECT count(*) || ' ' || count(wait_ms) || ' ' || round(sum(wait_ms), 3) || ' ' "
               "|| max(ordinal) FROM v_collective",
               "287 285 96.0 96");
    assert_run("SELECT count(*) FROM v_collective AS a JOIN v_collective AS b USING (ordinal) "
               "WHERE a.rank = 0 AND b.rank = 2 AND a.wait_ms = b.wait_ms",
               "95");
}

/* The kernel is one of sends and receives. */
TEST(nccl_s_kernels_are_what_torch_called) {
    struct kineto_job job = planted();
    job.on_gpu = job.unnamed = true;
    job.annotated = false;
    import(&job, "3 processes");
    assert_run("SELECT count(*) || ' ' || function || ' ' || max(ordinal) || ' ' || "
               "round(sum(wait_ms), 3) FROM v_collective GROUP BY function",
               "288 all_to_all 96 96.0");
    assert_run("SELECT group_concat(n) FROM (SELECT count(*) || ' ' || direction || ' ' || "
               "max(layer) || ' ' || max(wait_ns) AS n FROM v_span WHERE phase = 'dispatch' "
               "GROUP BY direction)",
               "144 backward 3 200000,144 forward 3 4200000");
    assert_says(REPORT, 0, "for rank 1, rank 0 most (4.00 ms), 100 % of it from layer 3 dispatch");
}

/* NCCL's operations have no numbers, and one rank has one less than the others. */
TEST(counts_that_can_t_be_right_are_none) {
    struct kineto_job job = planted();
    job.on_gpu = job.unnamed = job.late = true;
    import(&job, "3 processes");
    assert_run("SELECT count(*) || ' ' || count(wait_ms) FROM v_collective", "193 0");
    assert_run("SELECT count(*) FROM v_collective WHERE rank = 2 AND ordinal > 0", "0");
    assert_says(REPORT, 0, CULPRIT);
}

/* Of which group an exchange of gloo was is not known. */
TEST(exchanges_of_several_groups_are_not_compared) {
    struct kineto_job job = planted();
    job.groups = 2;
    job.named_hosts = false;
    import(&job, "share no collective with the first");
    assert_run("SELECT count(*) || ' ' || count(wait_ms) FROM v_collective", "288 0");
}

TEST(clocks_are_put_beside_one_another) {
    struct kineto_job job = planted();
    job.named_hosts = false;
    job.offset_ns[1] = 3600000000000; /* no wall clock is so wrong */
    job.offset_ns[2] = -77000000;
    import(&job, "clocks: put beside one another by 96 collectives: up to 3600000.000 ms apart, "
                 "known to within 0 ms");
    assert_says(REPORT, 0, CULPRIT);
    assert_run("SELECT max(abs(a.start_ns - b.start_ns)) FROM v_span a JOIN v_span b "
               "USING (iteration, phase) WHERE phase = 'iteration'",
               "0");
    assert_run("SELECT count(*) FROM v_rank WHERE reason IS NOT NULL", "0");
}

TEST(a_cut_trace_keeps_what_is_before) {
    struct kineto_job job = planted();
    start_anew();
    kineto_write(&job, "");
    assert_runs("size=$(stat -c %s rank1.json) && truncate -s $((size * 2 / 3)) rank1.json");
    assert_says("moeperf import rank*.json --db run.db", 0,
                "rank 1: rank1.json is damaged where it is cut off, after");
    assert_run("SELECT group_concat(status) FROM v_rank", "complete,interrupted,complete");
    assert_run("SELECT count(*) >= 7 AND count(*) < 12 FROM v_span WHERE rank = 1 AND "
               "phase = 'iteration'",
               "1");
    /* Which of gloo's operations its are nobody knows: some of another thread may be missing. */
    assert_run("SELECT (count(*) > 0) || ' ' || count(wait_ms) FROM v_collective WHERE rank = 1",
               "1 0");
    start_anew();
    kineto_write(&job, ".gz");
    assert_runs("truncate -s 3000 rank1.json.gz");
    assert_says("moeperf import rank*.json.gz --db run.db", 0,
                "rank1.json.gz is damaged where it can't be unpacked, after");
    job.named_hosts = false; /* by collectives that may be others, clocks are not compared */
    start_anew();
    kineto_write(&job, "");
    assert_runs("truncate -s -9000 rank1.json");
    assert_says("moeperf import rank*.json --db run.db", 0,
                "clocks: 1 of 3 processes share no collective with the first");
}

TEST(what_is_no_trace_leaves_the_database_alone) {
    const struct kineto_job job = planted();
    start_anew();
    kineto_write(&job, "");
    write_file("words", "words\n");
    write_file("other.json", "{\"traceEvents\": 7}");
    write_file("cut.json", "{\"schemaVersion\": 1, \"traceEv");
    write_file("nobody.json", "{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": "
                              "\"a\", \"pid\": 1, \"tid\": 1, \"ts\": 1, \"dur\": 2}]}");
    write_file(
        "rank0_quoted.json",
        "{\"traceEvents\": [\n{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"a\", \"pid\": 1, "
        "\"tid\": 1, \"ts\": 1, \"dur\": 2},\n{\"ph\": \"X\", \"name\": \"{\"a\": \"b\", \"c\": "
        "1}\"}, {\"ph\": \"M\", \"pid\": 1}]}");
    assert_int_equal(mkdir("folder", 0700), 0);
    write_file("empty", "");
    write_file("torn.gz", "\x1f\x8b\x08 and so on");
    write_file("deep.csv", "rank,phase,start,end,layer\n0,expert,0,1,32768\n");
    static const struct refused_line refused[] = {
        {"moeperf import other.json --db run.db", "other.json: is no trace of PyTorch's"},
        {"moeperf import cut.json --db run.db", "is no trace of PyTorch's profiler"},
        {"moeperf import rank0.json words --db run.db",
         "words: it can't be read, or is not of kind"},
        {"moeperf import --as pytorch rank0.json words --db run.db", "is no trace of PyTorch's"},
        {"moeperf import nobody.json --db new/run.db", "call it rank0.json"},
        {"moeperf import rank0.json rank0.json --db run.db", "rank 0, which rank0.json has"},
        {"moeperf import rank0.json -o x.mptrace", "a recording (pytorch) goes into a database"},
        {"moeperf import missing.json --as pytorch --db run.db", "missing.json: No such file"},
        {"moeperf import missing.json --db run.db", "missing.json: No such file"},
        {"moeperf import", "usage: moeperf import FILE... [--as KIND] [--db FILE] [--rules NAME]; "
                           "--help tells more\n"},
        {"moeperf import words --db run.db", "words: its beginning is that of no recording"},
        {"moeperf import rank0_quoted.json --db run.db",
         "no range of any thread is in it; rank0_quoted.json is damaged near byte"},
        {"moeperf import folder", "folder: it is a folder; of recordings the files are named"},
        {"moeperf import folder --db run.db", "folder: it is a folder"},
        {"moeperf import empty --db run.db", "empty: is empty"},
        {"moeperf import torn.gz --db run.db", "torn.gz: damaged gzip"},
        {"moeperf import deep.csv --db run.db", "deep.csv:2: layer '32768'; 0 to 32767 are right"},
        {"moeperf import rank0.json --as pytroch --db run.db",
         "--as pytroch: no kind is called so (moeperf import --help lists them); did you mean "
         "\"pytorch\"?"}};
    assert_refused(refused);
    assert_int_equal(access("run.db", F_OK), -1);
    assert_int_equal(access("new", F_OK), -1);
    assert_int_equal(count_entries(".", ".import-"), 0);
}

/* Four steps of two ranks; the second one's experts take 4 ms longer in each. */
static void write_table(const char *path, const char *header, double unit_us) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s\r\n", header);
    for (int step = 0; step < 6; step++)
        for (int rank = 0; rank < 2; rank++) {
            const int start = 20000 * step, work = rank ? 9000 : 5000;
            fprintf(file,
                    "%d,expert,\"the \"\"best\"\", by far\",%.10g,%.10g,3,forward,%d,100,%d\r\n",
                    rank, start * unit_us, (start + work) * unit_us, step, 8 + step);
            fprintf(file, "%d,combine,exchange,%.10g,%.10g,3,forward,%d,,%d\r\n", rank,
                    (start + work) * unit_us, (start + 10000) * unit_us, step, 8 + step);
        }
    fclose(file);
}

/* Ready-made rules know the phases, and of no range that it is an iteration. */
TEST(phases_without_iterations_have_some_proposed) {
    start_anew();
    FILE *file = fopen("named.csv", "w");
    assert_non_null(file);
    fputs("rank,name,start_ms,end_ms\n", file);
    for (int i = 0; i < 12; i++)
        fprintf(file, "%d,step %d,%d,%d\n%d,layer 0 expert,%d,%d\n", i % 2, i / 2, 20 * i,
                20 * i + 39, i % 2, 20 * i, 20 * i + 38);
    fclose(file);
    assert_says("moeperf import named.csv --db run.db", 0, "12 became spans",
                "iteration  step {iteration}\n",
                "moeperf import --db run.db named.csv --rules run.db.rules.yaml");
    write_file("single.csv", "rank,phase,start,end\n0,expert,0,1\n");
    assert_says("moeperf import single.csv --db run.db", 0, "(spans): 1 range\n",
                "1 process, 1 range, 1 became");
    assert_says("moeperf import --db run.db named.csv --rules run.db.rules.yaml", 0,
                "24 became spans", LACKS("what the ranges are called"));
}

TEST_TURNS(span_tables_have_phases, 3, unit) {
    static const char *const header[] = {
        "rank,phase,name,start_us,end_us,layer,direction,iteration,tokens,thread",
        "\xef\xbb\xbfrank,phase,name,start,end,layer,direction,iteration,tokens,thread",
        "rank,phase,name,start_ns,end_ns,layer,direction,iteration,tokens,thread"};
    static const double unit_us[] = {1, 1e-6, 1000};
    start_anew();
    write_table("spans.csv", header[unit], unit_us[unit]);
    assert_says("moeperf import spans.csv --db run.db", 0, "2 processes");
    assert_says(REPORT, 0,
                "rank 0 waits 4.00 ms of each 10.00 ms iteration (40 %) for rank 1, "
                "100 % of it from layer 3 expert: it takes 4.00 ms longer per "
                "iteration at the same tokens (slow rank)");
    assert_run("SELECT count(*) || ' ' || max(iteration) || ' ' || sum(end_ns - "
               "start_ns) FROM v_span WHERE phase = 'iteration'",
               "12 5 120000000");
    assert_says("moeperf predict --run 1 --db run.db", 0,
                "\nrank 1 costs most: as fast as the others, with the tokens that it has, it "
                "would\nsave 4.000 ms of an iteration (40.0 %)\n");
    /* Their clock says no day. */
    assert_run("SELECT julianday() - julianday(started_at) < 1 FROM run", "1");
}

/* Rank 1 is always half an iteration behind. */
TEST(iterations_that_overlap_are_no_pace) {
    start_anew();
    assert_runs(
        "awk 'BEGIN {print \"rank,phase,iteration,start_ms,end_ms\"; for (i = 0; i < 20; "
        "i++) print i % 2 \",expert,\" int(i / 2) \",\" .5 * i \",\" .5 * i + 1}' >spans.csv");
    assert_runs("moeperf import spans.csv --db run.db");
    assert_says("moeperf report --db run.db", 0,
                "spans: iterations overlap: on average 1.42 are under way at once, so that one\n"
                "ends every 1.06 ms.\n",
                LACKS("EP"));
}

TEST(span_tables_have_names) {
    start_anew();
    write_table("spans.csv", "rank,x,name,start_us,end_us,layer,direction,iteration,tokens,thread",
                1);
    write_file("my.yaml",
               "rules:\n  - {name: 'the \"best\", by far', phase: expert, layer: "
               "payload.layer, tokens: payload.tokens}\n"
               "  - {name: exchange, phase: combine, layer: payload.layer, waits: all}\n");
    assert_says("moeperf import spans.csv --db run.db --rules my.yaml --rules moeperf", 0,
                "36 became spans");
    assert_says(REPORT, 0, "from layer 3 expert: it takes 4.00 ms longer");
}

TEST(mistakes_in_span_tables_have_their_line) {
    static const char *const wrong[][2] = {
        {"0,expert,1,x\n0,expert,3,4\n", "spans.csv:2: end 'x'; a time is right"},
        {"0,expert,1\n0,expert,3,4\n", "spans.csv:2: a line beginning with '0'; as many fields"},
        {"0,experts,1,2\n0,expert,3,4\n", "spans.csv:2: phase 'experts'"},
        {"-1,expert,1,2\n0,expert,3,4\n", "spans.csv:2: rank '-1'"},
        {"0,expert,2,1\n0,expert,3,4\n", "spans.csv:2: end '1'; it is before the start"},
        {"0,expert,1,2\n70000,expert,3,4\n", "spans.csv:3: rank '70000'; 0 to 65535"},
        {"", "spans.csv: no span is in it"}};
    start_anew();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_file("spans.csv", formatted("rank,phase,start,end\n%s", wrong[i][0]));
        assert_says("moeperf import spans.csv --db run.db", 2, wrong[i][1]);
    }
    assert_int_equal(access("run.db", F_OK), -1);
    write_table("spans.csv", "rank,phase,name,start,end,layer,direction,iteration,tokens,thread",
                1);
    assert_runs("truncate -s -30 spans.csv");
    assert_says("moeperf import spans.csv --db run.db", 0,
                "rank 0 and 1 more: spans.csv ends in line 25 (which is not whole)");
    for (int whole = 1; whole >= 0; whole--) {
        write_table("spans.csv",
                    "rank,phase,name,start_us,end_us,layer,direction,iteration,tokens,thread", 1);
        assert_runs("gzip -f spans.csv");
        if (!whole)
            assert_runs("truncate -s -20 spans.csv.gz");
        assert_says("moeperf import spans.csv.gz --db packed.db", 0,
                    whole ? "36 ranges" : "spans.csv.gz: damaged gzip data after line 2");
    }
}

TEST_GROUP(enter_shell, leave_folder);
