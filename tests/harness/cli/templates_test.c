/* The files for CI systems that others copy: their commands, as the files have them, on a small
 * suite. What fetches and builds is played: what is there is what was built. */
#include "reference/base/yaml.h"
#include "results/report/vega.h"
#include "tests/harness/cli/shell.h"

/* A checkout's own scripts, and programs that others have; beside it what an earlier run left. */
static void make_checkout(void) {
    assert_runs("mkdir -p checkout/ci played base/old && cd checkout && rm -rf build");
    write_script("checkout/ci/setup", "exit 0\n");
    write_script("checkout/ci/text", "exit 0\n");
    write_script("played/apt-get", "exit 0\n");
    write_script("played/git",
                 "[ $1 = config ] && exit 0\n[ \"$*\" = 'worktree add --force --detach "
                 "../base the-base' ] && mkdir ../base\n");
    write_script("played/cmake",
                 "mkdir -p build/release\nln -sfn " MOEPERF_FOLDER " build/release/bin\n");
    write_file("checkout/tiny.yaml",
               "suite: tiny\ncommon: {ranks: 1, layers: 1, width: 16, heads: 2, "
               "experts: 4, expert-width: 16, sequence: 16, batch: 4, "
               "iterations: 23, text: default}\njobs: [{name: ep, system: ep}]\n");
}

static void add_text(const struct mp_yaml *value, FILE *script) {
    for (int i = 0; value && i < value->count; i++)
        add_text(value->item[i], script);
    if (value && value->kind == MP_YAML_SCALAR)
        fprintf(script, "%s\n", value->text);
}

/* The commands of a job: of its steps, which GitHub gives a shell each, or its script. */
static void write_commands(const struct mp_yaml *job, const char *path) {
    FILE *script = fopen(path, "w");
    const struct mp_yaml *steps = mp_yaml_get(job, "steps");
    assert_non_null(script);
    fputs("set -e\n", script);
    for (int i = 0; steps && i < steps->count; i++)
        add_text(mp_yaml_get(steps->item[i], "run"), script);
    add_text(mp_yaml_get(job, "script"), script);
    fclose(script);
}

static void run_commands(const struct mp_yaml *job, const char *says) {
    write_commands(job, "script");
    /* The same with fewer pairs: the last number counts. */
    assert_runs("sed -i '/--pairs 12/s/--quiet/--quiet --pairs 1 --slice 0/' script");
    assert_says("cd checkout && PATH=$PWD/../played:$PATH SUITE=tiny.yaml BASE=the-base "
                "bash ../script; status=$?; [ $status -le 1 ] && echo done",
                0, "done\n"); /* times of a busy machine may differ, and nothing else */
    assert_says("grep -c 'pairs 12\\|--append' script", 0, "1\n");
    assert_says(says, 0, "as it should be\n");
}

/* `jobs`: the key that has them, NULL: the document. */
static void check(const char *file, const char *jobs, const char *gate, const char *history) {
    char folder[MP_VEGA_FOLDER];
    struct mp_yaml *document = NULL;
    struct mp_error error = {0};
    if (mp_vega_find(folder, &error))
        skip("%s", error.text);
    if (mp_yaml_load(formatted("%s/ci/templates/%s", MOEPERF_SOURCE, file), &document, &error))
        fail_msg("%s", error.text);
    const struct mp_yaml *all = jobs ? mp_yaml_get(document, jobs) : document;
    make_checkout();
    run_commands(mp_yaml_get(all, gate),
                 "cd checkout && grep -q '<testcase .*ep: loss ranks=1\"/>' gate.xml && "
                 "echo as it should be");
    run_commands(mp_yaml_get(all, history), "cd checkout && [ $(wc -l <history.jsonl) = 1 ] && "
                                            "grep -q data-chart history.html && "
                                            "echo as it should be");
    unlink("checkout/nightly.db"); /* the next night's machine has none */
    run_commands(mp_yaml_get(all, history), "cd checkout && [ $(wc -l <history.jsonl) = 2 ] && "
                                            "echo as it should be");
    assert_runs("rm -rf checkout base");
    mp_yaml_destroy(document);
}

TEST(commands_for_github_work) {
    check("github.yaml", "jobs", "gate", "history");
}

TEST(commands_for_gitlab_work) {
    check("gitlab.yaml", NULL, "moeperf-gate", "moeperf-history");
}

/* Asked for help, none installs, builds or checks anything. */
TEST(scripts_say_what_they_do) {
    assert_runs("for script in " MOEPERF_SOURCE "/ci/*; do [ -f $script ] && [ -x $script ] || "
                "continue; timeout 30 $script --help >said && [ $(wc -l <said) -gt 1 ] && ! grep "
                "'^==' said || exit 1; done");
    assert_says(MOEPERF_SOURCE "/ci/lint everything", 2, "lint: 'everything' is too much");
}

/* What --pairs finds ends it with status 1, behind the page. */
TEST(the_quickstart_ends_as_its_run) {
    assert_runs(
        "mkdir -p quick/ci quick/build/release/bin quick/out; cd quick/ci; cp " MOEPERF_SOURCE
        "/ci/quickstart " MOEPERF_SOURCE "/ci/common.sh .; for stub in setup text cmake; do "
        "echo '#!/bin/sh' >$stub; chmod +x $stub; done");
    write_script("quick/build/release/bin/moeperf",
                 "case $* in *=1) exit 1 ;; *=2) exit 2 ;; esac\n");
    assert_says("PATH=$PWD/quick/ci:$PATH quick/ci/quickstart --pairs=1", 1,
                "with charts: ", "results in out/quickstart/results.db\n");
    assert_says("PATH=$PWD/quick/ci:$PATH quick/ci/quickstart --pairs=2", 2, LACKS("charts"));
}

TEST_GROUP(enter_shell, leave_folder);
