/* Several launchers on one machine, each the host of a run: with a name and a clock of its own
 * where the kernel lets us (namespaces). */
#include "tests/harness/cli/annotated.h"

#define NO_NAMESPACES "unshare --uts --time isn't permitted here"

static bool has_namespaces(void) {
    return !system("unshare --uts --time --monotonic 1 --fork hostname beta >/dev/null 2>&1");
}

static const char rules[] =
    "rules:\n"
    "  - {name: dispatch, domain: moeperf, phase: dispatch, iteration: payload.iteration, layer: "
    "payload.layer, direction: payload.direction, waits: all}\n"
    "  - {name: \"{phase}\", domain: moeperf, iteration: payload.iteration, layer: payload.layer, "
    "direction: payload.direction}\n";

/* One mpirun for both ranks, and a moeperf record for each: the second one's clock is a day ahead.
 */
TEST(a_clock_a_day_ahead_is_found) {
    need_collector();
    if (!has_namespaces())
        skip(NO_NAMESPACES);
    write_file("rules.yaml", rules);
    write_file("job.yaml", "{name: two, system: ep, ranks: 2, layers: 3, width: 32, heads: 2, "
                           "experts: 8, expert-width: 64, sequence: 32, batch: 4, iterations: 20, "
                           "text: words}\n");
    /* Open MPI's own leaks are told apart where ranks are tested. */
    write_script("host",
                 "export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0\n"
                 "[ \"$1\" = alpha ] || exec unshare --uts --time --monotonic 86400 --fork sh -c "
                 "'hostname beta; exec moeperf record --part parts -- moeperf-train job.yaml'\n"
                 "exec moeperf record --part parts -- moeperf-train job.yaml\n");
    assert_runs("mpirun --oversubscribe --bind-to none -n 1 ./host alpha : -n 1 ./host beta");
    assert_runs("! ls out/results.db"); /* parts add no run */
    assert_says("moeperf record -o run.db --rules rules.yaml --from parts", 0,
                "clocks: 2 hosts, put beside one another by 120 ranges \"dispatch\": known to");
    assert_run("SELECT ranks || ' ' || nodes || ' ' || (SELECT group_concat(clock || ' ' || "
               "(host = 'beta')) FROM (SELECT * FROM v_rank ORDER BY rank)) FROM run",
               "2 2 reference 0,samples 1");
    /* It is known exactly; ranks may have to wait for a core. */
    assert_run("SELECT abs(avg(offset_ns - 86400000000000)) < max(error_ns) + 1000000 FROM clock",
               "1");
    assert_run("SELECT max(abs(a.end_ns - b.end_ns)) < 100000000 FROM v_span a JOIN v_span b "
               "USING (iteration, layer, phase, direction) WHERE a.rank = 0 AND b.rank = 1 AND "
               "phase = 'dispatch'",
               "1");
    /* Again, by the folders' names: the same run. */
    assert_runs("moeperf record -o run.db --rules rules.yaml --from parts/*");
    assert_run("SELECT count(*) FROM run", "1");
    assert_says("moeperf record -o run.db --rules rules.yaml --from parts/beta-*/ parts/beta-*", 2,
                "are one recording");
    assert_run("SELECT count(*) FROM run", "1");
    assert_runs("! ls -d run.db.*.parts");
}

/* A step, and rules for it. */
static void write_step(void) {
    write_file("script", "+step\n+experts\n=200\n-\n-\n");
    write_file("steps.yaml", "rules:\n  - {name: step, phase: iteration}\n"
                             "  - {name: experts, phase: expert, layer: 0}\n");
}

/* As torchrun starts them, of which there is one a host: its name for the run, and its ranks. */
TEST(parts_are_checked) {
    need_collector();
    write_step();
    write_script("rank", "RANK=$1 WORLD_SIZE=$2 TORCHELASTIC_RUN_ID=$3 exec moeperf record --part "
                         "$4 -- " ANNOTATED " told <script\n");
    assert_runs("./rank 0 3 first three & ./rank 1 3 first three; wait");
    assert_says("moeperf record -o checked.db --rules steps.yaml --from three", 2,
                "of 3 ranks 1 recorded no range or their part is not here, the first is rank 2");
    assert_runs("moeperf record -o some.db --rules steps.yaml --from three --some-ranks");
    assert_answer("some.db", "SELECT ranks || ' ' || nodes FROM run", "3 1");
    assert_runs("./rank 2 3 second other");
    assert_says("moeperf record -o checked.db --rules steps.yaml --from three --from other", 2,
                "of run second");
    assert_runs("./rank 2 3 first three");
    assert_says("moeperf record -o checked.db --rules steps.yaml --from three", 0,
                "clocks: all processes have this host's\n");
    assert_answer("checked.db", "SELECT group_concat(ranks || ' ' || status) FROM run",
                  "3 complete");
    assert_says("moeperf record three", 2, "a command stands behind --");
    assert_says("moeperf record --some-ranks -- true", 2, "take --from FOLDER");
    assert_says("moeperf record --part p --rules steps.yaml -- true", 2, "--part only leaves");
    assert_says("moeperf record --part empty -- true", 0, "nothing was recorded here");
    free(shell("moeperf record --part status -- sh -c 'exit 7'", 7));
}

/* ---- disks of their own ---- */

#define NO_DISKS "unshare --mount isn't permitted here"

/* Two hosts: this one and beta, which has another disk at the same path. */
static void make_disks(void) {
    assert_runs("mkdir -p local beta-disk && rm -rf local/* beta-disk/*; { echo; hostname; echo "
                "'beta slots=1 # far away'; echo beta; } > hosts");
    write_script("launch",
                 "exec mpirun --oversubscribe --bind-to none -n 1 \"$@\" : -n 1 unshare --mount "
                 "--uts sh -c 'hostname beta; mount --bind beta-disk local; exec \"$0\" \"$@\"' "
                 "\"$@\"\n");
    write_script("copy", "case \"$1\" in */spools) [ ! -e broken ] || exit 9;; esac\n"
                         "there() { echo \"$1\" | sed \"s|^beta:$PWD/local|$PWD/beta-disk|\"; }\n"
                         "exec cp -r \"$(there \"$1\")\" \"$(there \"$2\")\"\n");
}

#define ON_HOSTS                                                                                   \
    "moeperf run disks.yaml --hosts hosts --launcher './launch {program} {arguments}' "            \
    "--copy './copy {from} {to}' --work \"$PWD/local\" --db disks.db"

static bool has_disks(void) {
    return !system("unshare --mount --uts true 2>/dev/null");
}

TEST(jobs_run_on_disks_of_their_own) {
    if (!has_disks())
        skip(NO_DISKS);
    make_disks();
    write_file("disks.yaml", SMALL_SUITE("disks", "nodes: 2, iterations: 4",
                                         "{name: one, system: ep}, {name: two, system: ep}"));
    assert_runs(ON_HOSTS);
    assert_answer("disks.db",
                  "SELECT group_concat(status || ' ' || ranks_recorded || ' ' || (SELECT "
                  "group_concat(host = 'beta') FROM (SELECT * FROM v_rank WHERE v_rank.run_id = "
                  "v_run.run_id ORDER BY rank)), ';') FROM v_run",
                  "complete 2 0,1;complete 2 0,1");
    /* What can't be copied is not lost. */
    write_file("broken", "");
    AUTO(text) char *said = shell(ON_HOSTS, 2);
    AUTO(text) char *command = command_in(said, "moeperf run --from "); /* for all of them */
    assert_contains(said, "ended with status 9");
    remove("broken");
    assert_runs(command);
    assert_answer("disks.db", "SELECT group_concat(status || ranks_recorded) FROM v_run",
                  "complete2,complete2,complete2,complete2");
}

TEST(copies_are_checked) {
    make_disks();
    assert_says("moeperf run quickstart --copy 'cp {from} {to}'", 2, "--copy takes --hosts FILE");
    assert_says("moeperf run quickstart --hosts hosts --copy 'cp {from}'", 2,
                "should contain {from} and {to}");
    assert_says("moeperf run quickstart --hosts nowhere", 2, "nowhere: No such file");
    write_file("nobody", "# none\n\n");
    assert_says("moeperf run quickstart --hosts nobody", 2, "nobody: no host is in it");
    assert_says("moeperf run quickstart --hosts hosts --copy 'cp {from} {to}' --db x.db", 2,
                "is to be named from / on");
    assert_says("moeperf record --from parts --hosts hosts", 2, "--hosts takes --copy");
    assert_says("moeperf record --hosts hosts -- true", 2, "take --from FOLDER");
}

/* Parts on local disks come together by the same copies. */
TEST(parts_are_gathered) {
    need_collector();
    make_disks();
    write_step();
    write_script("part", "RANK=$1 WORLD_SIZE=2 exec moeperf record --part $2 -- " ANNOTATED
                         " told <script\n");
    assert_runs("./part 0 local/parts && ./part 1 beta-disk/parts");
    assert_runs("moeperf record -o gathered.db --rules steps.yaml --from \"$PWD/local/parts\" "
                "--hosts hosts --copy './copy {from} {to}'");
    assert_answer("gathered.db", "SELECT ranks || status FROM run", "2complete");
}

TEST_GROUP(enter_shell, leave_folder);
