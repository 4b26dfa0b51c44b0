/* The program moeperf as people start it: exit statuses, first sentences, JSON that parses, a whole
 * suite. */
#include "tests/harness/cli/shell.h"

TEST(commands_are_listed) {
    assert_says("moeperf", 2, "usage: moeperf COMMAND");
    assert_says("moeperf --help", 0, "usage: moeperf COMMAND");
    assert_says("moeperf help", 0, "  doctor ");
    assert_says("moeperf help list", 0, "usage: moeperf list");
    assert_says("for command in $(moeperf --help | sed -n '/^commands:/,/^$/s/^  \\([a-z]*\\) .*/"
                "\\1/p'); do moeperf $command --help | sed '/^examples:/,$d'; done", /* as copied */
                0, "usage: moeperf run", "usage: moeperf doctor",
                "\n                  [iteration][layer][rank][expert]\n", /* of a table */
                "--type sqlite)\nkinds of loads:\n", "notes.\n\nkinds of recordings:\n",
                "\n                        model's sizes, so that moeperf", FITS);
    assert_says("moeperf help pridictions", 2, "did you mean \"predictions\"?");
    assert_says("moeperf help nothing-of-the-kind", 2, "moeperf help: no ready-made page");
    assert_says("moeperf rnu", 2, "moeperf: unknown command \"rnu\"; did you mean \"run\"?\n");
    assert_says("moeperf --colour", 2, "moeperf --help lists them");
}

/* Every page of the manual is listed with its title, and is text that fits. */
TEST(the_manual_is_read_on_a_terminal) {
    assert_says("moeperf help", 0, "\n  predictions  Predictions\n", FITS);
    assert_says("for topic in $(moeperf help | sed -n '/^pages of the manual/,$s/^  \\([^ ]*\\) .*/"
                "\\1/p'); do moeperf help $topic >page && [ $(wc -c <page) -gt 500 ] && "
                "! grep -q '](\\|[*][*]\\|^| ' page || echo no good: $topic; echo; done >pages; "
                "cat pages; test $(wc -l <pages) -gt 12",
                0, LACKS("no good"));
    /* Words are filled, rows stand below each other, commands stay as they are. */
    assert_says("moeperf help start", 0, LACKS("svg"), LACKS("time per iteration of every"));
    assert_says("moeperf help comparing", 0, "\n    moeperf run quickstart --pairs 12");
    assert_says("moeperf help tasks", 0,
                "\n  compare all systems\n      `moeperf run all-systems`: the same text");
    assert_says("moeperf help predictions", 0, "as the trainer and carries their plans out");
}

/* One release and one revision, whichever program is asked. */
TEST(both_programs_are_of_one_version) {
    int release, length = 0;
    AUTO(text)
    char *own = shell("moeperf --version", 0), *trainer = shell("moeperf-train --version", 0);
    assert_int_equal(sscanf(own, "moeperf %d.%*d.%*d (%*[0-9a-z-])%n", &release, &length), 1);
    assert_int_equal(own[length], '\n');
    assert_string_equal(strchr(own, ' '), strchr(trainer, ' '));
}

static const struct refused_line bad_inputs[] = {
    {"moeperf list",
     "moeperf list: an argument is missing: what to list, one of systems, gates, exchanges, "},
    {"moeperf list system",
     "moeperf list: can't list \"system\"; it is one of systems, gates, exchanges, workloads, "
     "generators, suites, clusters, rules, devices; did you mean \"systems\"?\n"},
    {"moeperf show fsdp", "moeperf show: nothing is called \"fsdp\"; did you mean \"fssdp\"?\n"},
    {"moeperf reshape x.mptrace -o y.mptrace --layers 5000000",
     "moeperf reshape: --layers 5000000: should be a whole number from 1 to 65536\n"},
    {"moeperf help start extra", "moeperf help: \"extra\" is one argument too many; usage: "},
    {"echo '{}' > counts.json; moeperf show ./counts.json",
     "moeperf show: ./counts.json: of files "},
    {"touch runs.db; moeperf show runs.db", "moeperf show: runs.db: of files those are shown whose "
                                            "names end in .mptrace (loads) or .yaml"},
    {"moeperf report --db \"$UNSET\"", "moeperf report: --db needs a value: --db FILE\n"},
    {"moeperf predict --cluster b200 --loads balanced --set ranks=8",
     "moeperf predict: --set ranks=8: a prediction has the ranks and nodes of its cluster: "},
    {"moeperf run predicted --set ranks-per-node=4", "moeperf run: --set ranks-per-node=4: "},
    {"moeperf predict --cluster b200 --loads balanced --vary ranks=8,16",
     "moeperf predict: --vary ranks: a prediction has the ranks and nodes of its cluster: "},
    {"moeperf predict --cluster b200 --loads balanced --set precision=fp32",
     "moeperf predict: --set precision=fp32: that is how ranks train; a prediction has "
     "predict.precision "},
    {"moeperf predict --cluster b200 --loads balanced --set device=cuda",
     "moeperf predict: --set device=cuda: that is how ranks train; a prediction has its cluster's "
     "device "},
    {"moeperf predict --cluster b200 --loads balanced --vary threads=1,2",
     "moeperf predict: --vary threads: that is how ranks train; "},
    {"moeperf predict --cluster b200 --loads balanced --set learning-rate=0.1",
     "moeperf predict: --set learning-rate=0.1: that is how ranks train, and changes nothing in a "
     "prediction; leave it out\n"},
    {"moeperf place --cluster b200 --loads balanced --set checkpoint=here",
     "moeperf place: --set checkpoint=here: that is how ranks train, "},
    {"moeperf run predicted --set beta1=0.5", "moeperf run: --set beta1=0.5: that is how ranks "},
    {"moeperf reproduce tamoe --set threads=2",
     "moeperf reproduce: --set threads=2: that is how ranks train; "},
    {"moeperf predict --cluster b200 --loads balanced --vary seed=1,2",
     "moeperf predict: --vary seed: what is drawn here has a seed of its own: "},
    {"moeperf predict --cluster b200 --loads balanced --set routing=skewed",
     "moeperf predict: --set routing=skewed: --trace or --loads says what is routed\n"},
    {"moeperf predict --cluster b200 --loads balanced --set system=llep",
     "moeperf predict: --set system=llep: --system NAME says which\n"},
    {"moeperf predict --cluster b200 --loads balanced --set predict.cache-width=576",
     "moeperf predict: job ep: predict.cache-width: mode train has no cache; leave it out, "},
    {"moeperf predict --cluster b200 --loads balanced --set mode=decode --set "
     "predict.recompute=full",
     "moeperf predict: job ep: predict.recompute: mode decode has no backward; leave it out, "},
    {"moeperf predict --cluster b200 --loads balanced --set mode=prefill --set "
     "predict.optimizer-bytes=0",
     "moeperf predict: job ep: predict.optimizer-bytes: mode prefill has no backward; leave it "},
    {"moeperf predict --cluster b200 --loads balanced --vary precision=fp32,bf16",
     "moeperf predict: --vary precision: that is how ranks train; a prediction has "},
    {"moeperf predict --cluster b200 --loads balanced --system llep --system llep",
     "moeperf predict: --system llep: given twice\n"},
    {"moeperf run quickstrat",
     "moeperf run: no ready-made suite is called \"quickstrat\"; did you mean \"quickstart\"?"},
    {"moeperf run gone.yaml",
     "moeperf run: gone.yaml: No such file or directory (moeperf list suites names the ready-made "
     "ones)\n"},
    {"echo '# Read: me: first' > README.md; moeperf run README.md",
     "moeperf run: README.md: this file's name does not end in .yaml as a suite's does, and no "
     "ready-made one is called so (moeperf list suites names them)\n"},
    {"echo 'Read: me: first' > notes; moeperf run ./notes",
     "moeperf run: ./notes:1:9: mapping values are not allowed in this context; is this file a "
     "suite? One is written in YAML (moeperf show suite says what it holds)\n"},
    {"echo 'suite: me: first' > m.yaml; moeperf run m.yaml",
     "moeperf run: m.yaml:1:10: mapping values are not allowed in this context\n"},
    {"touch README.md; moeperf README.md",
     "moeperf: unknown command \"README.md\"; a file goes behind a command, as in moeperf run "
     "SUITE.yaml or moeperf report --db FILE (moeperf --help lists them)\n"},
    {"moeperf gone/runs.db",
     "moeperf: unknown command \"gone/runs.db\"; a file goes behind a command"},
    {"moeperf quickstart",
     "moeperf: unknown command \"quickstart\"; to run the suite of that name: moeperf run "
     "quickstart\n"},
    {"moeperf my.yaml --db m.db",
     "moeperf: unknown command \"my.yaml\"; to run the suite of that name: moeperf run my.yaml\n"},
    {"moeperf run ci --itertions 3",
     "unknown option --itertions; did you mean --set iterations=3?\n"},
    {"moeperf run ci --seed=7", "unknown option --seed; did you mean --set seed=7?\n"},
    {"moeperf run ci --timeout --json",
     "unknown option --timeout; did you mean --set timeout=VALUE?\n"},
    {"moeperf report --seed 7", "unknown option --seed; --help lists them\n"},
    {"moeperf run ci --text gone", "moeperf run: --text: gone: No such file or directory\n"},
    {"mkdir hollow; touch hollow/file; moeperf run ci --text hollow:hollow/file --db hollow.db",
     "moeperf run: --text: hollow:hollow/file: there is not one byte in it; files"},
    {"echo 'no database, but long enough' > n.db; moeperf report --db n.db",
     "moeperf report: n.db"},
    {"moeperf report --db gone.db",
     "moeperf report: gone.db: no such database; moeperf run --db FILE makes one\n"},
    {"moeperf report --format latx",
     "moeperf report: --format latx: should be text|json|csv|markdown|latex; did you mean "
     "\"latex\"?\n"},
    {"moeperf predict --format csv --json",
     "moeperf predict: --format csv does not go with --json\n"},
    {"moeperf report --run 1 --runs", "report: --runs lists all; --run does not go with it\n"},
    {"moeperf compare a b n.db", "\"n.db\" is one argument too many; usage: "},
    {"moeperf report n.db", "\"n.db\" is one argument too many: did you mean --db n.db?"},
    {"moeperf report --run one", "moeperf report: --run one: should be the number of a run"},
    {"touch file; moeperf run ci --db file/x.db", "moeperf run: "},
};

/* ci/quickstart puts its database elsewhere than moeperf report looks for one. */
TEST(databases_that_are_there_are_named) {
    static const char *const commands[] = {"report", "export --as json --run 1 x.json",
                                           "export --run 1 x.mptrace", "predict --run 1",
                                           "history" /* which has no --db */};
    write_file("no.db", "no database, but long enough to be one\n");
    assert_runs("mkdir -p out/first && moeperf predict --cluster b200 --nodes 1 --loads balanced "
                "--set layers=1 --system ep --iterations 1 --quiet --db out/first/some.db");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        assert_says(formatted("moeperf %s", commands[i]), 2,
                    ": out/results.db: no such database; moeperf run --db FILE makes one; there "
                    "is: out/first/some.db\n");
    }
    assert_runs("rm -r out no.db");
}

TEST(bad_input_is_status_two) {
    assert_refused(bad_inputs);
}

/* What is listed can be shown. */
TEST(lists_and_things_are_json_too) {
    static const char *const topics[] = {"systems",    "gates",  "exchanges", "workloads",
                                         "generators", "suites", "clusters",  "rules"};
    for (int i = 0; i < 8; i++) {
        size_t at;
        json_t *row;
        AUTO(json) json_t *rows = json_of(formatted("moeperf list %s --json", topics[i]), 0);
        assert_true(json_array_size(rows) >= 2);
        json_array_foreach(rows, at, row) {
            const char *name = text(row, "name");
            assert_non_null(name);
            assert_non_null(text(row, "title"));
            assert_json(formatted("moeperf show %s --json", name), 0, "name", name);
            assert_says(formatted("moeperf show %s", name), 0, name);
        }
    }
    assert_json("moeperf list devices --json", 0, "0/name", "cpu");
    assert_says("moeperf show rules", 0, "A rules file says ", FITS);
    assert_says("moeperf show megatron-lm", 0, "\ndescription: Megatron-LM");
    assert_says("moeperf show job", 0, FITS,
                "ranks-per-node: default all ranks; a number 1 .. 4096",
                "gate-options: {...} of its gate", "text: default");
    assert_says("moeperf show suite", 0, "timeout: default 3600 s");
    assert_says("moeperf show h100", 0, "\nfile: /", "/h100.yaml\n");
    assert_says("moeperf show cluster", 0, FITS, "number as {value: 8, source:",
                "\n    memory: must be given; a number 1000000 .. 1e+15 B\n");
    assert_says("moeperf show paper", 0,
                "\n    warm-up: default 0 iterations; a number 0 .. 1000000");
    /* Of one name both are shown: a system and rules for programs, or a gate, or a cluster; a
     * workload and a suite, or a generator. */
    assert_says("moeperf show deepspeed", 0, "\nrules of the same name\n# /");
    assert_says("moeperf show tamoe", 0,
                "\ngate of the same name\ntamoe: TA-MoE: a balancing loss");
    assert_says("moeperf show swiftmoe", 0, "\ncluster of the same name\nswiftmoe: test bed");
    assert_says("moeperf show skewed", 0, "skewed: the first few experts get a fixed share",
                "\nsuite of the same name\n# /");
    assert_json("moeperf show skewed --json", 0, "kind", "workload", "suite/name", "skewed");
    assert_says("moeperf show balanced", 0, "\n  routing: balanced\n",
                "\ngenerator of the same name\nbalanced: every");
}

/* Every system in words: nothing that names a bit, 80 columns, what the table says of a yardstick.
 */
TEST(systems_are_shown_in_words) {
    json_t *rows = json_of("moeperf list systems --json", 0), *row;
    size_t at;
    assert_true(json_array_size(rows) >= 12);
    json_array_foreach(rows, at, row) {
        const char *name = text(row, "name");
        bool yardstick = json_is_true(member(row, "unattainable"));
        assert_non_null(text(row, "source"));
        assert_true(json_is_array(member(row, "capabilities")));
        assert_int_equal(yardstick, !strcmp(name, "free-balance"));
        /* Rules of the same name are shown as they stand. */
        assert_says(formatted("moeperf show %s | sed '/^rules of the same name/,$d'", name), 0,
                    "\nsource\n  ", "\nmodels\n  ", "\ncapabilities\n  ", FITS,
                    yardstick ? "Tables call it unattainable."
                              : LACKS("Tables call it unattainable."));
    }
    json_decref(rows);
    assert_says("moeperf list systems", 0, "\nfree-balance  Perfect balance, ",
                "\n              replicates experts, a yardstick, no system\n",
                "\n              replicates experts, drops routes\n", FITS);
    assert_says("moeperf list suites && moeperf list clusters", 0, FITS);
    assert_says("moeperf show deepspeed", 0, "\n  Not modelled: ");
}

TEST(generators_are_shown_with_options) {
    assert_says("for name in $(moeperf list generators | sed -n 's/^\\([a-z0-9]*\\) .*/\\1/p'); do "
                "moeperf show $name | grep -q '^  seed: default 1; ' || echo $name has no seed; "
                "moeperf show $name; done",
                0, "\noptions of all generators\n  seed: default 1; ", LACKS("has no seed"), FITS);
    assert_says("moeperf list generators", 0, "\ndynamics   loads as they move in training\n",
                FITS);
    assert_says("moeperf show dynamics", 0, "\n  pace: default 1; ");
    assert_says("moeperf show w0", 0, "\n  none of its own\n");
    assert_json("moeperf show zipf --json", 0, "kind", "generator", "options/#", "3",
                "common_options/5/unit", "ranks");
    assert_says("moeperf show zpif", 2, "did you mean \"zipf\"?");
}

TEST(clusters_are_shown_with_sources) {
    json_t *rows = json_of("moeperf list clusters --json", 0), *row, *quantity;
    size_t at, i;
    json_array_foreach(rows, at, row) { /* by file: never a system's, and its path may be long */
        assert_says(formatted("moeperf show %s | sed '1,/^$/d'", text(row, "path")), 0,
                    "\n  nodes: ", "    assumed: ", "\n  tokens of an expert by width\n", FITS);
        AUTO(json)
        json_t *cluster = json_of(formatted("moeperf show %s --json", text(row, "path")), 0);
        assert_has(cluster, "kind", "cluster");
        json_array_foreach(member(cluster, "quantities"), i, quantity) {
            assert_int_equal(!member(quantity, "source"), member(quantity, "assumed") != NULL);
        }
    }
    json_decref(rows);
    assert_says(
        "moeperf show hecate-a", 0,
        "\n  levels.cluster.bandwidth: 12.5 GB/s\n    Hecate, set-up of the evaluation: 100 "
        "Gb/s\n");
    assert_says("moeperf show laer-moe", 0, " 0.689[1]");
    assert_runs("sed 's/nodes: {value: 4/nodes: {value: 0/' $(moeperf show hecate-a --json | "
                "sed -n 's/.*\"path\": \"\\(.*\\)\".*/\\1/p') >none.yaml");
    assert_says("printf 'a: 1\\0\\n' >nul.yaml; moeperf show nul.yaml", 2,
                "nul.yaml: is no text in UTF-8 (moeperf report prints what a database has)");
    assert_says("echo >empty.yaml; moeperf show empty.yaml", 2,
                "empty.yaml: is empty; it should be a suite, job, cluster or rules");
    assert_says("moeperf show none.yaml", 2, "none.yaml:2: nodes: 0 is outside");
    assert_says("moeperf show hecat-a", 2, "did you mean \"hecate-a\"?");
}

/* A machine may lack extras, as a GPU or what draws charts. */
TEST(doctor_knows_whether_things_work) {
    json_t *doctor = json_of("moeperf doctor --json", 0), *check;
    bool all_good = true;
    size_t i;
    assert_has(doctor, "works", "true");
    json_array_foreach(member(doctor, "checks"), i, check) {
        all_good &= !strcmp(text(check, "state"), "good");
    }
    json_decref(doctor);
    assert_says("moeperf doctor", 0,
                all_good ? "Everything works.\n"
                         : "Everything that moeperf needs works; the notes say",
                " gpu work ", " nccl ");
    /* With nothing but our own programs in the path there is no mpirun. */
    assert_says("PATH=" MOEPERF_FOLDER " moeperf doctor", 1,
                "-> install openmpi-bin (apt-get install openmpi-bin)\n");
}

TEST(a_suite_gives_rows_tables_and_adds_up) {
    for (int invocation = 1; invocation <= 2; invocation++) {
        AUTO(json)
        json_t *object = json_of("moeperf run pair.yaml --quiet --json --db twice.db" TINY, 0);
        assert_has(object, "complete", "2", "failed", "0", "speedup/rows/#", "2");
        assert_true(json_is_object(member(object, "convergence")));
        assert_true(json_is_object(member(object, "stragglers")));
    }
    /* Each report has its own invocation's rows, the database has all. */
    for (int run = 1; run <= 4; run++) {
        assert_says(formatted("moeperf report --run %d --db twice.db", run), 0,
                    run % 2 ? "ep" : "fssdp");
    }
    /* The same rows in every format, the tables alone. */
    assert_json("moeperf report --db twice.db --format json", 0, "speedup/rows/#", "2");
    assert_says("moeperf report --db twice.db --format csv | head -3", 0,
                "table,ms_per_iteration,speedup_vs_ep,");
    assert_says("moeperf report --db twice.db --format csv | head -3 | grep -c ',ep,\\|,fssdp,'", 0,
                "2\n");
    assert_says("moeperf report --db twice.db --format markdown", 0, "\n| fssdp | ");
    assert_says("moeperf report --db twice.db --format latex", 0, "\\toprule\n  system & ");
    assert_says("moeperf report --db twice.db --runs --format csv | wc -l", 0, "5\n");
    assert_says("moeperf report --db twice.db --run 1 --format markdown", 0, "\n| expert | ");
    assert_says("moeperf report --run 5 --db twice.db", 2,
                "moeperf report: twice.db: no run 5; moeperf report --runs --db twice.db lists "
                "them\n");
    /* Nothing stands before the sentence. */
    assert_says("moeperf report --suite x --db twice.db 2>&1 | head -1", 0,
                "moeperf report: twice.db: no run of suite 'x'; moeperf report --runs");
}

/* The other one is tried all the same. */
TEST(a_failed_job_is_status_one) {
    write_file("short", "too short a text");
    assert_says(
        "touch none; moeperf run pair.yaml --text short:none --db f.db" TINY, 1,
        "ep: failed: ", "fssdp: failed: ", "0 jobs complete, 2 failed; everything is in f.db");
}

/* Who writes a database has it alone: others say that they wait, and go on. */
TEST(commands_wait_for_who_writes) {
    static const char *const commands[] = {
        "moeperf predict --cluster b200 --nodes 1 --loads balanced --system ep --db lock.db",
        "moeperf run pair.yaml --quiet --db lock.db" TINY};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        sqlite3 *database = NULL;
        char line[4096], command[512];
        bool waits = false;
        assert_runs(commands[i]);
        assert_int_equal(sqlite3_open("lock.db", &database), SQLITE_OK);
        assert_int_equal(sqlite3_exec(database, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        snprintf(command, sizeof command, "{ %s; } 2>&1", commands[i]);
        FILE *stream = popen(command, "r");
        while (!waits && fgets(line, sizeof line, stream))
            waits = strstr(line, "lock.db: another program has it locked; waiting up to 60 s");
        assert_true(waits);
        assert_int_equal(sqlite3_exec(database, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_close(database), SQLITE_OK);
        while (fgets(line, sizeof line, stream))
            continue;
        assert_int_equal(pclose(stream), 0);
    }
}

/* A database that can be opened and takes no run; what it did not take is added as it ended, by the
 * command that is printed, once. */
TEST(what_a_database_has_no_room_for_is_added_later) {
    assert_runs("moeperf run pair.yaml --json --quiet --db full.db" TINY);
    execute("full.db", "CREATE TRIGGER full BEFORE INSERT ON run BEGIN "
                       "SELECT RAISE(ABORT, 'no more runs'); END");
    AUTO(text) char *output = shell("moeperf run pair.yaml --db full.db" TINY, 2);
    assert_contains(output, "ep: not in the database: full.db: ", "no more runs",
                    "moeperf run: full.db: no job could be added to it; nothing is lost, this "
                    "adds them: moeperf run --from out/runs/pair-");
    AUTO(text) char *command = command_in(output, "moeperf run --from out/runs/pair-");
    assert_says(command, 2, "no more runs");
    assert_says("moeperf run pair.yaml --pairs 1 --slice 0 --against $(which moeperf-train) "
                "--db full.db" TINY " --set iterations=23",
                2, "this adds them: moeperf run --from out/runs/pair-",
                "-base --db full.db && moeperf run --from out/runs/pair-");
    execute("full.db", "DROP TRIGGER full");
    assert_says(command, 0, "/002-fssdp: job fssdp: added as run 4 of full.db\n");
    assert_says(command, 0, "/001-ep: job ep: is already run 3 of full.db\n");
    assert_answer("full.db",
                  "SELECT count(*) FROM v_run JOIN v_speedup USING (run_id) WHERE v_run.status = "
                  "'complete' AND reason IS NULL AND speedup_vs_ep > 0",
                  "4");
}

/* A limit of a file's size is as a full disk, and no signal ends moeperf. */
TEST(a_database_at_its_size_limit_is_said) {
    assert_says("ulimit -f 64; moeperf run pair.yaml --db limited.db" TINY, 2,
                "limited.db: cannot");
}

/* What one job needs more than there is room for is no failure of the job. */
TEST(a_job_that_was_not_added_is_counted_as_it_ended) {
    execute("full.db", "CREATE TRIGGER full BEFORE INSERT ON run WHEN NEW.job = 'fssdp' BEGIN "
                       "SELECT RAISE(ABORT, 'no more runs'); END");
    assert_says("moeperf run pair.yaml --db full.db" TINY, 1,
                "\n2 jobs complete, 0 failed; 1 of them could not be added to full.db and is not "
                "lost: moeperf run --from out/runs/pair-");
}

/* The loss of one job is no number from some iteration on; the other one is alone then. */
TEST(a_training_that_diverges_is_failed_and_compared_with_nothing) {
    write_file("diverges.yaml", "suite: diverges\n"
                                "common: {ranks: 2, text: default}\n"
                                "jobs: [{system: ep, learning-rate: 1000}, {system: fssdp},\n"
                                "  {name: other, system: fssdp, learning-rate: 1000}]\n");
    assert_json("moeperf run diverges.yaml --json --quiet --db diverges.db" TINY
                " --set iterations=200",
                1, "complete", "1", "failed", "2");
    assert_says("moeperf report --db diverges.db", 0, "the training", LACKS("as fast as EP"));
    assert_answer("diverges.db",
                  "SELECT count(*) || sum(v_run.status = 'failed' AND reason LIKE 'iteration ' || "
                  "(iterations - 1) || ': the loss is %') || count(speedup_vs_ep) || "
                  "count(speed_vs_balanced) || count(ep_run_id) || (SELECT count(*) FROM rank "
                  "WHERE status = 'failed') FROM v_run JOIN v_speedup USING (run_id)",
                  "320004");
    /* Said once, and no checkpoint of it is written.  What Open MPI has not given back when ranks
     * end in an error is no leak of ours. */
    char *said =
        shell("env ASAN_OPTIONS=detect_leaks=0 mpirun -n 2 moeperf-train --set system=ep --set "
              "ranks=2 --set text=words --set layers=1 --set width=16 --set heads=2 --set "
              "expert-width=16 --set sequence=16 --set batch=4 --set iterations=200 --set "
              "learning-rate=1000 --set checkpoint=diverged",
              2);
    const char *first = strstr(said, "moeperf-train: iteration ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "moeperf-train: "));
    free(said);
    assert_int_equal(access("diverged", F_OK), -1);
}

TEST(what_keeps_nothing_is_refused) {
    static const char *const names[] = {":memory:", "file:x?mode=memory", "file::memory:"};
    static const char says[] = "is no file that a database can be kept in";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_says(formatted("moeperf run pair.yaml --db '%s'" TINY, names[i]), 2, says);
        assert_says(formatted("moeperf record -o '%s' --from .", names[i]), 2, says);
    }
    assert_says("moeperf run pair.yaml --db folder/" TINY, 2, "is a folder; a database is a file");
    assert_int_equal(count_entries(".", "memory") + count_entries(".", "folder"), 0);
}

static int enter(void **state) {
    int failed = enter_shell(state);
    write_file("pair.yaml", "suite: pair\n"
                            "common: {ranks: 2, text: default}\n"
                            "jobs: [{system: ep}, {system: fssdp}]\n");
    return failed;
}

TEST_GROUP(enter, leave_folder);
