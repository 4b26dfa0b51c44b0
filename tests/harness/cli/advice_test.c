/* Every command that a report prints works where it is printed: all of them are collected, from
 * text and pages, over databases of every kind and with a name that wants quotes, and run. */
#include <fnmatch.h>

#include "tests/harness/cli/shell.h"
#include "tests/results/runs.h"

enum { KINDS = 5, COMMANDS = 64, LENGTH = 512 };

/* What is advised at all (fnmatch); each must have been seen. */
static const char *const kinds[KINDS] = {
    "moeperf predict --run [0-9]* --system all *",
    "moeperf predict --run [0-9]* --without imbalance *",
    "moeperf report --stragglers --run [0-9]* *",
    "moeperf report --stragglers --suite-run *",
    "moeperf report --run [0-9]* --html run-*",
};

static struct {
    char command[COMMANDS][LENGTH];
    int count;
    bool seen[KINDS];
} advised;

static void add(const char *command) {
    int kind = 0;
    assert_true(strlen(command) < LENGTH && advised.count < COMMANDS);
    for (int i = 0; i < advised.count; i++)
        if (!strcmp(advised.command[i], command))
            return;
    strcpy(advised.command[advised.count++], command);
    while (kind < KINDS && fnmatch(kinds[kind], command, 0))
        kind++;
    if (kind == KINDS)
        fail_msg("%s: no kind of advice that this test knows", command);
    advised.seen[kind] = true;
}

/* Lines that begin with a command.  Nowhere else does "moeperf " stand before a command's name. */
static void collect_from_text(char *text) {
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (!strncmp(line, "    moeperf ", 12))
            add(line + 4);
        else if (strstr(line, "moeperf predict") || strstr(line, "moeperf report"))
            fail_msg("a command that can't be copied: %s", line);
}

static void collect_from_page(void) {
    AUTO(text)
    char *found =
        shell("sed 's/<[/]*span>//g' page.html | grep -o '<code class=\"command\">[^<]*' | "
              "sed \"s/^[^>]*>//; s/&#39;/'/g; s/&quot;/\\\"/g; s/&amp;/\\&/g\"",
              0);
    for (char *line = strtok(found, "\n"); line; line = strtok(NULL, "\n"))
        add(line);
}

static bool has_pages(void) {
    AUTO(text)
    char *output = shell("moeperf report --db predicted.db --html first.html || true", 0);
    bool works = !*output;
    if (!works)
        print_message("pages are left out: %s\n", output);
    return works;
}

static void collect(const char *database, bool pages) {
    static const char *const ways[] = {"", "--stragglers", "--run 1"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        AUTO(text)
        char *text = shell(formatted("moeperf report --db \"%s\" %s", database, ways[i]), 0);
        collect_from_text(text);
    }
    if (!pages)
        return;
    assert_runs(formatted("moeperf report --db \"%s\" --html page.html", database));
    collect_from_page();
}

/* ---- databases ---- */

/* More systems than are told of in sentences, and more than a page shows. */
static void predict(void) {
    char suite[4096] = "suite: many of them\n"
                       "common: {executor: predicted, cluster: hecate-a, layers: 2, width: 512,\n"
                       "  heads: 4, experts: 32, expert-width: 1024, sequence: 512, batch: 64,\n"
                       "  iterations: 8, loads: zipf exponent=1}\njobs:\n";
    for (int i = 0; i < 18; i++)
        snprintf(suite + strlen(suite), sizeof suite - strlen(suite),
                 "  - {name: job%d, system: ep}\n", i);
    write_file("many.yaml", suite);
    assert_runs("moeperf run many.yaml --db predicted.db --quiet");
    write_file("few.yaml", "suite: few\n"
                           "common: {executor: predicted, cluster: hecate-a, layers: 2,\n"
                           "  width: 512, heads: 4, experts: 32, expert-width: 1024,\n"
                           "  sequence: 512, batch: 64, iterations: 8,\n"
                           "  loads: zipf exponent=1}\n"
                           "jobs: [{system: ep}, {system: fssdp}]\n");
    assert_runs("moeperf run few.yaml --db 'it'\\''s $few.db' --quiet");
}

static void measure(void) {
    write_file("measured.yaml",
               "suite: measured\n"
               "common: {ranks: 2, layers: 2, width: 64, heads: 4, experts: 8, sequence: 32,\n"
               "  expert-width: 1024, batch: 8, iterations: 8, text: default}\n"
               "jobs: [{system: ep, routing: skewed, skew-share: 0.95, skew-experts: 2}]\n");
    assert_runs("moeperf run measured.yaml --db measured.db --quiet");
}

/* Eight iterations of a program that was recorded: layer 0 has uneven tokens, layer 1 a slow rank,
 * and rank 1 reads data for long and begins late. */
static void record_rank(struct runs_rank *own) {
    bool first = own->rank == 0;
    for (int i = 0; i < 8; i++) {
        int64_t at = i * 100000, late = first ? 0 : 5000, work = first ? 20000 : 0;
        int64_t slow = first ? 10000 : 20000, data = first ? 1000 : 9000;
        const struct runs_span spans[] = {
            {MP_PHASE_DATA, MP_NO_DIRECTION, at + late, data, 0, -1, -1, -1, false},
            {MP_PHASE_GATE, MP_FORWARD, at + late + data, 15000 - late - data, 15000 - late - data,
             0, -1, -1, false},
            {MP_PHASE_COMBINE, MP_FORWARD, at + 15000 + work, 21000 - work, 21000 - work, 0, -1, -1,
             false},
            {MP_PHASE_EXPERT, MP_FORWARD, at + 36000, slow, 0, 1, 500, -1, false},
            {MP_PHASE_COMBINE, MP_FORWARD, at + 36000 + slow, 21000 - slow, 21000 - slow, 1, -1, -1,
             false},
            {MP_PHASE_ITERATION, MP_NO_DIRECTION, at + late, 57000 - late, 0, -1, -1, -1, false},
            {MP_PHASE_EXPERT, MP_FORWARD, at + 15000, work, 0, 0, 1000, -1, false},
        };
        runs_record_some(own, i, spans, first ? 7 : 6);
    }
    mp_record_number(own->compute, -1, -1, "nvtx-pair-ns", 50);
    runs_clock_samples(own);
}

static void record(void) {
    struct runs_folder folder = {.path = "."};
    struct runs_rank ranks[2];
    struct mp_store_run program = runs_description("python3", "recorded");
    program.gate = NULL;
    assert_works(mp_store_open("recorded.db", &folder.store, &error));
    for (int r = 0; r < 2; r++) {
        runs_rank_open(&folder, r, 2, &ranks[r]);
        record_rank(&ranks[r]);
    }
    runs_ingest(&folder, &program, ranks, 2);
    mp_store_close(folder.store);
}

TEST(advice_works_where_it_is_printed) {
    predict();
    measure();
    record();
    bool pages = has_pages();
    collect("predicted.db", pages);
    assert_runs("moeperf run few.yaml --db measured.db --quiet"); /* two kinds in one */
    collect("measured.db", pages);
    collect("recorded.db", pages);
    collect("it's \\$few.db", pages);
    for (int k = 0; k < KINDS; k++)
        if (!advised.seen[k] && (pages || !strstr(kinds[k], "--html")))
            fail_msg("nothing advised \"%s\"", kinds[k]);
    for (int i = 0; i < advised.count; i++)
        assert_runs(advised.command[i]);
    print_message("%d commands\n", advised.count);
}

TEST_GROUP(enter_shell, leave_folder);
