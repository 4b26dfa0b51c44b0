/* Stragglers put into real runs of two ranks come back in the report: who, why and how much. */
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

#include "tests/harness/cli/shell.h"

/* The machine may be busy with other things.  Ranks never sleep (they wait by asking again and
 * again), so that one which had no core for some of its time was kept off it by something else; a
 * run in which that happened is no evidence against the analysis. */
enum { ATTEMPTS = 4, HOGS = 2 };
static const double least_on_core = 0.95;
enum answer { FOUND, NOT_FOUND, DISTURBED };

#define SUITE                                                                                      \
    "suite: stragglers\n"                                                                          \
    "common: {ranks: 2, layers: 2, width: 128, heads: 4, experts: 8, sequence: 64, batch: 8,\n"    \
    "  iterations: 14, text: default, system: ep, routing: balanced}\n"                            \
    "jobs:\n  - "

/* The analysis of one run; "waiting_ms" falls over its findings. */
static json_t *analysis_of(const char *job, const char *launcher) {
    char line[2048];
    FILE *file = fopen("suite.yaml", "w");
    assert_non_null(file);
    fprintf(file, SUITE "%s\n", job);
    fclose(file);
    remove("run.db");
    snprintf(line, sizeof line, "moeperf run suite.yaml --db run.db --quiet %s", launcher);
    free(shell(line, 0));
    json_t *object = json_of("moeperf report --db run.db --stragglers --json", 0);
    json_t *row = json_array_get(json_object_get(object, "rows"), 0);
    json_t *analysis = json_incref(json_object_get(row, "analysis"));
    json_decref(object);
    return analysis;
}

static double number_of(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name));
}

/* Whether the ranks but `hogged` (-1: none is) had a core all the time. */
static bool had_cores(const json_t *analysis, int hogged) {
    size_t r;
    json_t *rank;
    json_array_foreach(json_object_get(analysis, "ranks"), r, rank) {
        const json_t *share = json_object_get(rank, "on_core");
        assert_true(json_is_number(share));
        if ((int)r != hogged && json_number_value(share) < least_on_core) {
            print_message("  rank %d had a core for only %.0f %% of its time\n", (int)r,
                          100 * json_number_value(share));
            return false;
        }
    }
    return true;
}

/* Whether the first finding is this one; delay_ms: and how much longer, within 5 %; 0: any. */
static enum answer finds(const char *job, const char *launcher, int rank, const char *cause,
                         double delay_ms, int hogged) {
    json_t *analysis = analysis_of(job, launcher);
    const json_t *first = json_array_get(json_object_get(analysis, "findings"), 0);
    const json_t *at_fault = json_object_get(first, "rank");
    const char *why = json_string_value(json_object_get(first, "cause"));
    bool found = why && json_is_integer(at_fault) && json_integer_value(at_fault) == rank &&
                 !strcmp(why, cause);
    if (found && delay_ms > 0)
        found = fabs(number_of(first, "longer_ms") / delay_ms - 1) <= 0.05;
    print_message("%s\n  %s\n", job,
                  why ? json_string_value(json_object_get(first, "text")) : "nothing found");
    enum answer answer = found ? FOUND : had_cores(analysis, hogged) ? NOT_FOUND : DISTURBED;
    json_decref(analysis);
    return answer;
}

static enum answer find(const char *job, const char *launcher, int rank, const char *cause,
                        double delay_ms, int hogged) {
    enum answer answer = DISTURBED;
    for (int i = 0; i < ATTEMPTS && answer != FOUND; i++) {
        enum answer now = finds(job, launcher, rank, cause, delay_ms, hogged);
        if (now != DISTURBED)
            answer = now;
    }
    return answer;
}

static void assert_found(enum answer answer) {
    if (answer == DISTURBED) {
        print_message("skipped: other programs took the ranks' cores in %d runs\n", ATTEMPTS);
        skip();
    }
    assert_int_equal(answer, FOUND);
}

/* Both directions of two layers, 40 ms each. */
static void a_busy_loop_comes_back_within_5_percent(void **state) {
    (void)state;
    assert_found(find("{name: busy, inject: rank=1 phase=expert seconds=0.04}", "", 1, "slow rank",
                      160, -1));
}

static void more_tokens_are_routing(void **state) {
    (void)state;
    assert_found(find("{name: routed, routing: skewed, skew-share: 0.95, skew-experts: 2, "
                      "expert-width: 2048}",
                      "", 0, "routing", 0, -1));
}

static void delayed_transfers_are_communication(void **state) {
    (void)state;
    assert_found(find("{name: delayed, inject: rank=1 phase=dispatch seconds=0.02}", "", 1,
                      "communication", 0, -1));
}

static void late_data_is_the_host(void **state) {
    (void)state;
    assert_found(
        find("{name: data, inject: rank=0 phase=data seconds=0.08}", "", 0, "host", 80, -1));
}

/* ---- a noisy neighbour ---- */

static bool two_cores(int core[2]) {
    cpu_set_t mine;
    int count = 0;
    if (sched_getaffinity(0, sizeof mine, &mine))
        return false;
    for (int c = 0; c < CPU_SETSIZE && count < 2; c++)
        if (CPU_ISSET(c, &mine))
            core[count++] = c;
    return count == 2;
}

/* A program that wants all of one core, until this one ends. */
static pid_t start_hog(int core) {
    cpu_set_t one;
    pid_t hog = fork();
    if (hog != 0)
        return hog;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (sched_setaffinity(0, sizeof one, &one))
        _exit(1);
    for (volatile unsigned i = 0;; i++)
        ;
}

static void a_noisy_neighbour_makes_a_slow_rank(void **state) {
    int core[2];
    pid_t hog[HOGS];
    char launcher[512];
    (void)state;
    if (!two_cores(core) || system("taskset -V >/dev/null 2>&1") ||
        system("mpirun --version 2>/dev/null | grep -q 'Open MPI'")) {
        print_message("skipped: needs two cores, taskset and Open MPI\n");
        skip();
    }
    FILE *file = fopen("pinned", "w");
    assert_non_null(file);
    fprintf(file,
            "#!/bin/sh\nc=%d; [ \"$OMPI_COMM_WORLD_RANK\" = 1 ] && c=%d\n"
            "exec taskset -c $c \"$@\"\n",
            core[0], core[1]);
    fclose(file);
    assert_int_equal(system("chmod +x pinned"), 0);
    snprintf(launcher, sizeof launcher,
             "--launcher 'mpirun --oversubscribe --bind-to none -n {ranks} %.200s/pinned {program} "
             "{arguments}'",
             test_folder);
    for (int i = 0; i < HOGS; i++)
        hog[i] = start_hog(core[1]);
    enum answer answer = find("{name: neighbour, batch: 16}", launcher, 1, "slow rank", 0, 1);
    for (int i = 0; i < HOGS; i++)
        if (hog[i] > 0 && !kill(hog[i], SIGKILL))
            waitpid(hog[i], NULL, 0);
    assert_found(answer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_busy_loop_comes_back_within_5_percent),
        cmocka_unit_test(more_tokens_are_routing),
        cmocka_unit_test(delayed_transfers_are_communication),
        cmocka_unit_test(late_data_is_the_host),
        cmocka_unit_test(a_noisy_neighbour_makes_a_slow_rank),
    };
    return cmocka_run_group_tests_name("stragglers in real runs", tests, enter_shell, leave_folder);
}
