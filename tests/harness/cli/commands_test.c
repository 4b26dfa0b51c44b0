/* The program moeperf as people start it: exit statuses, first sentences, JSON that parses, help
 * whose examples work, a whole suite. */
#include <sqlite3.h>

#include "tests/harness/cli/shell.h"

TEST(commands_are_listed) {
    assert_says("moeperf", 2, "usage: moeperf COMMAND");
    assert_says("moeperf --help", 0, "usage: moeperf COMMAND");
    assert_says("moeperf help", 0, "  doctor ");
    assert_says("moeperf help list", 0, "usage: moeperf list");
    assert_says("moeperf help pridictions", 2, "did you mean \"predictions\"?");
    assert_says("moeperf help nothing-of-the-kind", 2, "moeperf help: no ready-made page");
    assert_says("moeperf rnu", 2, "moeperf: unknown command \"rnu\"; did you mean \"run\"?\n");
    assert_says("moeperf --colour", 2, "moeperf --help lists them");
}

/* Takes the text apart. */
static void assert_fits(char *text) {
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (strlen(line) > 80)
            fail_msg("more than 80 columns: %s", line);
}

/* Every page of the manual is listed with its title, and is text that fits. */
TEST(the_manual_is_read_on_a_terminal) {
    char *list = shell("moeperf help", 0);
    assert_non_null(strstr(list, "\n  predictions  Predictions\n"));
    int pages = 0;
    const char *line = strstr(list, "\npages of the manual");
    assert_non_null(line);
    for (line = strchr(line + 1, '\n'); line[1]; line = strchr(line + 1, '\n'), pages++) {
        char topic[32], command[64];
        assert_int_equal(sscanf(line, " %31s", topic), 1);
        snprintf(command, sizeof command, "moeperf help %s", topic);
        char *page = shell(command, 0);
        assert_true(strlen(page) > 500);
        assert_null(strstr(page, "]("));
        assert_null(strstr(page, "**"));
        assert_null(strstr(page, "\n| "));
        free(page);
    }
    assert_true(pages > 12);
    assert_fits(list);
    free(list);
    /* Words are filled, rows stand below each other, commands stay as they are. */
    char *start = shell("moeperf help start", 0);
    assert_null(strstr(start, "svg"));
    assert_null(strstr(start, "time per iteration of every"));
    free(start);
    assert_says("moeperf help comparing", 0, "\n    moeperf run quickstart --pairs 12");
    assert_says("moeperf help tasks", 0,
                "\n  compare all systems\n      `moeperf run all-systems`: the same text");
    assert_says("moeperf help predictions", 0, "as the trainer and carries their plans out");
}

/* One release and one revision, whichever program is asked. */
TEST(both_programs_are_of_one_version) {
    int release, length = 0;
    char *own = shell("moeperf --version", 0), *trainer = shell("moeperf-train --version", 0);
    assert_int_equal(sscanf(own, "moeperf %d.%*d.%*d (%*[0-9a-z-])%n", &release, &length), 1);
    assert_int_equal(own[length], '\n');
    assert_string_equal(strchr(own, ' '), strchr(trainer, ' '));
    free(own);
    free(trainer);
}

struct bad_input {
    const char *name, *line, *words;
};

static const struct bad_input bad_inputs[] = {
    {"unknown topic", "moeperf list system",
     "moeperf list: can't list \"system\"; it is one of systems, gates, exchanges, workloads, "
     "generators, suites, clusters, rules, devices; did you mean \"systems\"?\n"},
    {"unknown thing", "moeperf show fsdp",
     "moeperf show: nothing is called \"fsdp\"; did you mean \"fssdp\"?\n"},
    {"unknown ready-made suite", "moeperf run quickstrat",
     "moeperf run: no ready-made suite is called \"quickstrat\"; did you mean \"quickstart\"?"},
    {"suite file that is not there", "moeperf run gone.yaml",
     "moeperf run: gone.yaml: No such file or directory (moeperf list suites names the ready-made "
     "ones)\n"},
    {"file that is no suite", "echo '# Read: me: first' > README.md; moeperf run README.md",
     "moeperf run: README.md: this file's name does not end in .yaml as a suite's does, and no "
     "ready-made one is called so (moeperf list suites names them)\n"},
    {"path of a file that is no suite", "echo 'Read: me: first' > notes; moeperf run ./notes",
     "moeperf run: ./notes:1:9: mapping values are not allowed in this context; is this file a "
     "suite? One is written in YAML (moeperf show suite says what it holds)\n"},
    {"mistake in a suite", "echo 'suite: me: first' > m.yaml; moeperf run m.yaml",
     "moeperf run: m.yaml:1:10: mapping values are not allowed in this context\n"},
    {"file without a command", "touch README.md; moeperf README.md",
     "moeperf: unknown command \"README.md\"; a file goes behind a command, as in moeperf run "
     "SUITE.yaml or moeperf report --db FILE (moeperf --help lists them)\n"},
    {"path without a command", "moeperf gone/runs.db",
     "moeperf: unknown command \"gone/runs.db\"; a file goes behind a command"},
    {"suite without a command", "moeperf quickstart",
     "moeperf: unknown command \"quickstart\"; to run the suite of that name: moeperf run "
     "quickstart\n"},
    {"suite file without a command", "moeperf my.yaml --db m.db",
     "moeperf: unknown command \"my.yaml\"; to run the suite of that name: moeperf run my.yaml\n"},
    {"misspelt option", "moeperf run ci --jsn", "unknown option --jsn; did you mean --json?"},
    {"misspelt suite key", "printf 'suite: s\\ntimout: 3\\n' > s.yaml; moeperf run s.yaml",
     "moeperf run: s.yaml:2: unknown option \"timout\" for a suite; did you mean \"timeout\"?\n"},
    {"misspelt option of a job", "moeperf run ci --itertions 3",
     "unknown option --itertions; did you mean --set iterations=3?\n"},
    {"option of a job", "moeperf run ci --seed=7",
     "unknown option --seed; did you mean --set seed=7?\n"},
    {"option of a suite, no value", "moeperf run ci --timeout --json",
     "unknown option --timeout; did you mean --set timeout=VALUE?\n"},
    {"option of a job where none is set", "moeperf report --seed 7",
     "unknown option --seed; --help lists them\n"},
    {"text that is not there", "moeperf run ci --text gone",
     "moeperf run: --text: gone: No such file or directory\n"},
    {"database that is none",
     "echo 'no database, but long enough' > n.db; moeperf report --db n.db",
     "moeperf report: n.db"},
    {"database that is not there", "moeperf report --db gone.db",
     "moeperf report: gone.db: no such database; moeperf run --db FILE makes one\n"},
    {"format that there is none of", "moeperf report --format latx",
     "moeperf report: --format latx: should be text|json|csv|markdown|latex; did you mean "
     "\"latex\"?\n"},
    {"two formats", "moeperf predict --format csv --json",
     "moeperf predict: --format csv does not go with --json\n"},
    {"run of a word", "moeperf report --run one",
     "moeperf report: --run one: should be the number of a run"},
    {"database in a file", "touch file; moeperf run ci --db file/x.db", "moeperf run: "},
    {"mpirun missing", "PATH=" MOEPERF_FOLDER " moeperf run ci --db m.db",
     "moeperf run: mpirun is not installed; job ep with 2 ranks needs it (Debian and Ubuntu: "
     "package openmpi-bin)\n"},
    {"launcher that can't work", "moeperf run ci --launcher srun",
     "moeperf run: launcher: \"srun\" should contain {program} and {arguments}\n"},
};

/* ci/quickstart puts its database elsewhere than moeperf report looks for one. */
TEST(databases_that_are_there_are_named) {
    static const char *const commands[] = {"report", "export --as json --run 1 x.json",
                                           "export --run 1 x.mptrace", "predict --run 1"};
    char line[256];
    write_file("no.db", "no database, but long enough to be one\n");
    free(shell("mkdir -p out/first && moeperf predict --cluster b200 --nodes 1 --loads balanced "
               "--set layers=1 --system ep --iterations 1 --quiet --db out/first/some.db",
               0));
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        snprintf(line, sizeof line, "moeperf %s", commands[i]);
        assert_says(line, 2,
                    ": out/results.db: no such database; moeperf run --db FILE makes one; there "
                    "is: --db out/first/some.db\n");
    }
    free(shell("rm -r out no.db", 0));
}

TEST_EACH(bad_input_is_status_two, bad_inputs, c) {
    assert_says(c->line, 2, c->words);
}

TEST(lists_and_things_are_json_too) {
    static const char *const topics[] = {"systems",    "gates",  "exchanges", "workloads",
                                         "generators", "suites", "clusters",  "rules"};
    for (int i = 0; i < 8; i++) {
        char line[256];
        size_t at;
        json_t *row;
        snprintf(line, sizeof line, "moeperf list %s --json", topics[i]);
        json_t *rows = json_of(line, 0);
        assert_true(json_array_size(rows) >= 2);
        json_array_foreach(rows, at, row) {
            const char *name = json_string_value(json_object_get(row, "name"));
            assert_non_null(name);
            assert_non_null(json_string_value(json_object_get(row, "title")));
            snprintf(line, sizeof line, "moeperf show %s --json", name);
            json_t *thing = json_of(line, 0); /* what is listed can be shown */
            assert_string_equal(json_string_value(json_object_get(thing, "name")), name);
            json_decref(thing);
            snprintf(line, sizeof line, "moeperf show %s", name);
            assert_says(line, 0, name);
        }
        json_decref(rows);
    }
    char *grammar = shell("moeperf show rules", 0);
    assert_memory_equal(grammar, "A rules file says ", 18);
    assert_fits(grammar);
    free(grammar);
    assert_says("moeperf show megatron-lm", 0, "\ndescription: Megatron-LM");
    /* A system and rules for programs of the same name are both shown. */
    assert_says("moeperf show deepspeed", 0, "\nrules of the same name\n# /");
    assert_says("moeperf show tamoe", 0,
                "\ngate of the same name\ntamoe: TA-MoE: a balancing loss");
    json_t *devices = json_of("moeperf list devices --json", 0);
    assert_string_equal(json_string_value(json_object_get(json_array_get(devices, 0), "name")),
                        "cpu");
    json_decref(devices);
    assert_says("moeperf show job", 0, "ranks-per-node: default all ranks; a number 1 .. 4096");
    assert_says("moeperf show suite", 0, "timeout: default 3600 s");
    assert_says("moeperf show cluster", 0,
                "\n    memory: must be given; a number 1000000 .. 1e+15 B\n");
    assert_says("moeperf show paper", 0,
                "\n    warm-up: default 0 iterations; a number 0 .. 1000000");
    /* Workload and suite of one name are both shown. */
    assert_says("moeperf show skewed", 0, "skewed: the first few experts get a fixed share");
    assert_says("moeperf show skewed", 0, "\nsuite of the same name\n# /");
    json_t *skewed = json_of("moeperf show skewed --json", 0);
    assert_string_equal(json_string_value(json_object_get(skewed, "kind")), "workload");
    assert_non_null(json_object_get(json_object_get(skewed, "suite"), "text"));
    json_decref(skewed);
    /* So are system and cluster. */
    assert_says("moeperf show swiftmoe", 0, "\ncluster of the same name\nswiftmoe: test bed");
}

/* Every system in words: nothing that names a bit, 80 columns, what the table says of a yardstick.
 */
TEST(systems_are_shown_in_words) {
    json_t *rows = json_of("moeperf list systems --json", 0), *row;
    char *list = shell("moeperf list systems", 0), line[128];
    size_t at;
    assert_true(json_array_size(rows) >= 12);
    json_array_foreach(rows, at, row) {
        const char *name = json_string_value(json_object_get(row, "name"));
        bool yardstick = json_is_true(json_object_get(row, "unattainable"));
        assert_non_null(json_string_value(json_object_get(row, "source")));
        assert_true(json_is_array(json_object_get(row, "capabilities")));
        assert_int_equal(yardstick, !strcmp(name, "free-balance"));
        snprintf(line, sizeof line, "moeperf show %s", name);
        char *page = shell(line, 0);
        static const char *const headings[] = {"\nsource\n  ", "\nmodels\n  ",
                                               "\ncapabilities\n  "};
        for (int i = 0; i < 3; i++)
            assert_non_null(strstr(page, headings[i]));
        assert_int_equal(strstr(page, "Tables call it unattainable.") != NULL, yardstick);
        char *file = strstr(page, "\nrules of the same name\n"); /* as it stands */
        if (file)
            *file = '\0';
        assert_fits(page);
        free(page);
    }
    json_decref(rows);
    assert_non_null(strstr(list, "\nfree-balance  Perfect balance, "));
    assert_non_null(strstr(list, "\n              replicates experts, a yardstick, no system\n"));
    assert_non_null(strstr(list, "\n              replicates experts, drops routes\n"));
    assert_fits(list);
    free(list);
    list = shell("moeperf list suites", 0);
    assert_fits(list);
    free(list);
    list = shell("moeperf list clusters", 0);
    assert_fits(list);
    free(list);
    assert_says("moeperf show deepspeed", 0, "\n  Not modelled: ");
}

TEST(generators_are_shown_with_options) {
    size_t at;
    json_t *rows = json_of("moeperf list generators --json", 0), *row;
    json_array_foreach(rows, at, row) {
        char line[128];
        snprintf(line, sizeof line, "moeperf show %s",
                 json_string_value(json_object_get(row, "name")));
        char *page = shell(line, 0);
        assert_non_null(strstr(page, "\noptions of all generators\n  seed: default 1; "));
        assert_fits(page);
        free(page);
    }
    json_decref(rows);
    char *list = shell("moeperf list generators", 0);
    assert_non_null(strstr(list, "\ndynamics   loads as they move in training\n"));
    assert_fits(list);
    free(list);
    assert_says("moeperf show dynamics", 0, "\n  pace: default 1; ");
    assert_says("moeperf show w0", 0, "\n  none of its own\n");
    json_t *zipf = json_of("moeperf show zipf --json", 0);
    assert_string_equal(json_string_value(json_object_get(zipf, "kind")), "generator");
    assert_int_equal(json_array_size(json_object_get(zipf, "options")), 3);
    assert_true(json_array_size(json_object_get(zipf, "common_options")) > 5);
    json_decref(zipf);
    /* A job's balanced loads and the generator of that name are both shown. */
    assert_says("moeperf show balanced", 0, "\n  routing: balanced\n");
    assert_says("moeperf show balanced", 0, "\ngenerator of the same name\nbalanced: every");
    assert_says("moeperf show zpif", 2, "did you mean \"zipf\"?");
}

TEST(clusters_are_shown_with_sources) {
    json_t *rows = json_of("moeperf list clusters --json", 0), *row, *quantity;
    char line[256], *found;
    size_t at, i;
    json_array_foreach(rows, at, row) {
        const char *path = json_string_value(json_object_get(row, "path"));
        snprintf(line, sizeof line, "moeperf show %s", path); /* by file: never a system's */
        found = shell(line, 0);
        assert_non_null(strstr(found, "\n  nodes: "));
        assert_non_null(strstr(found, "    assumed: "));
        assert_non_null(strstr(found, "\n  tokens of an expert by width\n"));
        assert_fits(strstr(found, "\ndevice ")); /* after the path, which may be long */
        free(found);
        snprintf(line, sizeof line, "moeperf show %s --json", path);
        json_t *cluster = json_of(line, 0);
        assert_string_equal(json_string_value(json_object_get(cluster, "kind")), "cluster");
        json_array_foreach(json_object_get(cluster, "quantities"), i, quantity) assert_int_equal(
            !json_object_get(quantity, "source"), json_object_get(quantity, "assumed") != NULL);
        json_decref(cluster);
    }
    json_decref(rows);
    assert_says(
        "moeperf show hecate-a", 0,
        "\n  levels.cluster.bandwidth: 12.5 GB/s\n    Hecate, set-up of the evaluation: 100 "
        "Gb/s\n");
    assert_says("moeperf show laer-moe", 0, " 0.689[1]");
    free(shell("sed 's/nodes: {value: 4/nodes: {value: 0/' $(moeperf show hecate-a --json | "
               "sed -n 's/.*\"path\": \"\\(.*\\)\".*/\\1/p') >none.yaml",
               0));
    assert_says("printf 'a: 1\\0\\n' >nul.yaml; moeperf show nul.yaml", 2,
                "nul.yaml: is no text in UTF-8 (moeperf report prints what a database has)");
    assert_says("moeperf show none.yaml", 2, "none.yaml:2: nodes: 0 is outside");
    assert_says("moeperf show hecat-a", 2, "did you mean \"hecate-a\"?");
}

/* Whether every check is good: a machine may lack extras, as a GPU or what draws charts. */
static bool has_all_extras(void) {
    json_t *doctor = json_of("moeperf doctor --json", 0), *check;
    bool good = true;
    size_t i;
    json_array_foreach(json_object_get(doctor, "checks"), i, check) {
        good &= strcmp(json_string_value(json_object_get(check, "state")), "good") == 0;
    }
    json_decref(doctor);
    return good;
}

TEST(doctor_knows_whether_things_work) {
    json_t *healthy = json_of("moeperf doctor --json", 0);
    assert_true(json_is_true(json_object_get(healthy, "works")));
    json_decref(healthy);
    assert_says("moeperf doctor", 0,
                has_all_extras() ? "Everything works.\n"
                                 : "Everything that moeperf needs works; the notes say",
                " gpu work ", " nccl ");
    /* With nothing but our own programs in the path there is no mpirun. */
    assert_says("PATH=" MOEPERF_FOLDER " moeperf doctor", 1,
                "-> install openmpi-bin (apt-get install openmpi-bin)\n");
}

#define TINY                                                                                       \
    " --set layers=1 --set width=16 --set heads=2 --set expert-width=16 --set sequence=16"         \
    " --set batch=4 --set iterations=3 --set repeat=1"

/* Runs every line under "examples:" of a command's help, with `more` behind it. */
static int run_examples(const char *command, const char *more) {
    char line[1024];
    snprintf(line, sizeof line, "moeperf %s --help", command);
    char *help = shell(line, 0), *at = strstr(help, "\nexamples:\n");
    int count = 0;
    assert_non_null(at);
    for (at += strlen("\nexamples:\n"); *at; count++) {
        int length = (int)strcspn(at, "\n");
        assert_int_equal(strncmp(at, "  moeperf ", 10), 0);
        bool in_pairs = memmem(at, (size_t)length, " --pairs ", 9) != NULL;
        /* Pairs take iterations that can be judged; of so few in time slices none may be whole. */
        snprintf(line, sizeof line, "%.*s%s%s", length, at, more,
                 in_pairs ? " --pairs 1 --slice 0 --set iterations=23" : "");
        free(shell(line, 0));
        at += length + (at[length] == '\n');
    }
    free(help);
    return count;
}

TEST(examples_work) {
    assert_int_equal(run_examples("list", ""), 2);
    assert_int_equal(run_examples("show", ""), 7);
    assert_int_equal(run_examples("doctor", ""), 2);
    free(shell("mkdir -p before/bin && ln -s $(command -v moeperf-train) before/bin/", 0));
    assert_int_equal(run_examples("run", TINY), 4);
    free(shell("mkdir -p out/quickstart && cp out/results.db out/quickstart/results.db", 0));
    assert_true(run_examples("report", "") >= 3);
}

/* After examples_work, which has left a database. */
TEST(a_page_says_what_it_lacks) {
    assert_says("MOEPERF_VEGA=/nowhere moeperf report --html page.html", 2,
                "/nowhere/vega-util.min.js: No such file or directory; the HTML report draws with "
                "Vega: install libjs-vega");
    free(shell("test ! -e page.html", 0));
    assert_says("MOEPERF_VEGA=/nowhere moeperf doctor", 0, "moeperf report --html is off");
    assert_says("moeperf report --html page.html --json", 2, "--json does not go with it");
    assert_says("moeperf report --html page.html --stragglers", 2,
                "--stragglers does not go with it");
}

/* What `moeperf run quickstart` has left: after examples_work. */
TEST(quickstart_names_its_yardstick_and_shows_drops) {
    assert_says("moeperf report --suite quickstart", 0, "\n(unattainable)\n", "  dropped\n",
                "\nfree-balance (unattainable) is a yardstick and no system: ");
    json_t *object = json_of("moeperf report --suite quickstart --json", 0), *row;
    json_t *rows = json_object_get(json_object_get(object, "speedup"), "rows");
    size_t at;
    assert_int_equal(json_array_size(rows), 6);
    json_array_foreach(rows, at, row) {
        const char *system = json_string_value(json_object_get(row, "system"));
        double dropped = json_number_value(json_object_get(row, "dropped_fraction"));
        assert_int_equal(json_is_true(json_object_get(row, "unattainable")),
                         !strcmp(system, "free-balance"));
        assert_int_equal(dropped > 0, !strcmp(system, "swiftmoe"));
        if (strcmp(system, "swiftmoe") != 0) /* nothing else changes what is learnt */
            assert_true(json_number_value(json_object_get(row, "max_loss_difference")) < 1e-4);
    }
    json_decref(object);
}

TEST(a_suite_gives_rows_tables_and_adds_up) {
    for (int invocation = 1; invocation <= 2; invocation++) {
        json_t *object = json_of("moeperf run pair.yaml --quiet --json --db twice.db" TINY, 0);
        assert_int_equal(json_integer_value(json_object_get(object, "complete")), 2);
        assert_int_equal(json_integer_value(json_object_get(object, "failed")), 0);
        const json_t *rows = json_object_get(json_object_get(object, "speedup"), "rows");
        assert_int_equal(json_array_size(rows), 2);
        assert_true(json_is_object(json_object_get(object, "convergence")));
        assert_true(json_is_object(json_object_get(object, "stragglers")));
        json_decref(object);
    }
    /* Each report has its own invocation's rows, the database has all. */
    for (int run = 1; run <= 4; run++) {
        char line[128];
        snprintf(line, sizeof line, "moeperf report --run %d --db twice.db", run);
        assert_says(line, 0, run % 2 ? "ep" : "fssdp");
    }
    /* The same rows in every format, the tables alone. */
    json_t *object = json_of("moeperf report --db twice.db --format json", 0);
    assert_int_equal(json_array_size(json_object_get(json_object_get(object, "speedup"), "rows")),
                     2);
    json_decref(object);
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

TEST(a_failed_job_is_status_one) {
    write_file("short", "too short a text");
    char *output = shell("moeperf run pair.yaml --text short --db f.db" TINY, 1);
    assert_non_null(strstr(output, "ep: failed: "));
    assert_non_null(strstr(output, "fssdp: failed: ")); /* the other one was tried all the same */
    assert_non_null(strstr(output, "0 jobs complete, 2 failed; everything is in f.db"));
    free(output);
}

static void execute(const char *path, const char *sql) {
    sqlite3 *database = NULL;
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    assert_int_equal(sqlite3_exec(database, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
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
        free(shell(commands[i], 0));
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
    json_t *made = json_of("moeperf run pair.yaml --json --quiet --db full.db" TINY, 0);
    json_decref(made);
    sqlite3 *database = NULL;
    execute("full.db", "CREATE TRIGGER full BEFORE INSERT ON run BEGIN "
                       "SELECT RAISE(ABORT, 'no more runs'); END");
    char *output = shell("moeperf run pair.yaml --db full.db" TINY, 2);
    assert_non_null(strstr(output, "ep: not in the database: full.db: "));
    assert_non_null(strstr(output, "no more runs"));
    const char *advice =
        strstr(output, "moeperf run: full.db: no job could be added to it; nothing "
                       "is lost, this adds them: ");
    assert_non_null(advice);
    char *command = strdup(strstr(advice, "moeperf run --from out/runs/pair-"));
    command[strcspn(command, "\n")] = '\0';
    free(output);
    assert_says(command, 2, "no more runs");
    output = shell("moeperf run pair.yaml --pairs 1 --slice 0 --against $(which moeperf-train) "
                   "--db full.db" TINY " --set iterations=23",
                   2);
    const char *base = strstr(output, "this adds them: moeperf run --from out/runs/pair-");
    assert_non_null(base);
    assert_non_null(strstr(base, "-base --db full.db && moeperf run --from out/runs/pair-"));
    free(output);
    execute("full.db", "DROP TRIGGER full");
    assert_says(command, 0, "/002-fssdp: job fssdp: added as run 4 of full.db\n");
    assert_says(command, 0, "/001-ep: job ep: is already run 3 of full.db\n");
    sqlite3_stmt *row = NULL;
    assert_int_equal(sqlite3_open("full.db", &database), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(database,
                                        "SELECT count(*) FROM v_run JOIN v_speedup USING (run_id) "
                                        "WHERE v_run.status = 'complete' AND reason IS NULL AND "
                                        "speedup_vs_ep > 0",
                                        -1, &row, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(row), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(row, 0), 4);
    sqlite3_finalize(row);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
    free(command);
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
    json_t *report = json_of("moeperf run diverges.yaml --json --quiet --db diverges.db" TINY
                             " --set iterations=200",
                             1);
    assert_int_equal(json_integer_value(json_object_get(report, "complete")), 1);
    assert_int_equal(json_integer_value(json_object_get(report, "failed")), 2);
    json_decref(report);
    assert_says("moeperf report --db diverges.db", 0, "the training", LACKS "as fast as EP");
    sqlite3 *database = NULL;
    sqlite3_stmt *row = NULL;
    assert_int_equal(sqlite3_open("diverges.db", &database), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(
                         database,
                         "SELECT count(*), sum(v_run.status = 'failed' AND reason LIKE 'iteration "
                         "' || (iterations - 1) || ': the loss is %'), count(speedup_vs_ep), "
                         "count(speed_vs_balanced), count(ep_run_id), (SELECT count(*) FROM rank "
                         "WHERE status = 'failed') FROM v_run JOIN v_speedup "
                         "USING (run_id)",
                         -1, &row, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(row), SQLITE_ROW);
    static const int expected[] = {3, 2, 0, 0, 0, 4};
    for (int i = 0; i < 6; i++)
        assert_int_equal(sqlite3_column_int(row, i), expected[i]);
    sqlite3_finalize(row);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
    /* Said once, and no checkpoint of it is written.  What Open MPI has not given back when ranks
     * end in an error is no leak of ours. */
    char *said =
        shell("env ASAN_OPTIONS=detect_leaks=0 mpirun -n 2 moeperf-train --set system=ep "
              "--set ranks=2 --set text=words --set "
              "layers=1 --set width=16 --set heads=2 --set expert-width=16 --set sequence=16 "
              "--set batch=4 --set iterations=200 --set learning-rate=1000 --set "
              "checkpoint=diverged",
              2);
    const char *first = strstr(said, "moeperf-train: iteration ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "moeperf-train: "));
    free(said);
    assert_int_equal(access("diverged", F_OK), -1);
}

TEST(what_keeps_nothing_is_refused) {
    static const char *const names[] = {":memory:", "file:x?mode=memory", "file::memory:", "\"\""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char line[200];
        snprintf(line, sizeof line, "moeperf run pair.yaml --db '%s'" TINY, names[i]);
        assert_says(names[i][0] == '"' ? "moeperf run pair.yaml --db \"\"" TINY : line, 2,
                    "is no file that a database can be kept in");
        snprintf(line, sizeof line, "moeperf record -o '%s' --from .", names[i]);
        assert_says(names[i][0] == '"' ? "moeperf record -o \"\" --from ." : line, 2,
                    "is no file that a database can be kept in");
    }
    assert_int_equal(count_entries(".", "memory"), 0);
}

static int enter(void **state) {
    int failed = enter_shell(state);
    write_file("pair.yaml", "suite: pair\n"
                            "common: {ranks: 2, text: default}\n"
                            "jobs: [{system: ep}, {system: fssdp}]\n");
    return failed;
}

TEST_GROUP(enter, leave_folder);
