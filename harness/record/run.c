#include "harness/record/run.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/record/devices.h"
#include "harness/record/processes.h"
#include "harness/record/suggest.h"
#include "harness/suite/files.h"
#include "reference/base/characters.h"
#include "reference/base/shell.h"

static const double shortest_seconds = 0.01; /* of ranges, for a share of the time to mean much */
static const time_t first_day = 946684800;   /* 2000: no recording is older */
enum { PATH_SIZE = RECORD_PATH_SIZE, COMMAND_BYTES = 8192 };

/* ---- into the database ---- */

static void join_command(const struct mp_record_run *run, char text[COMMAND_BYTES]) {
    text[0] = '\0';
    for (int i = 0; run->command[i]; i++)
        mp_text_add(text, COMMAND_BYTES, " ", "%s", run->command[i]);
}

/* When the first of the processes made its spool.  A clock that counts from anywhere else than
 * wall clocks do says no day: then it is that of now. */
static void format_start(const struct record_process processes[], int count, FILE *stream,
                         char text[32]) {
    int64_t first_ns = processes[0].realtime_ns;
    for (int i = 1; i < count; i++)
        if (processes[i].realtime_ns < first_ns)
            first_ns = processes[i].realtime_ns;
    time_t seconds = (time_t)(first_ns / 1000000000);
    struct tm utc;
    if (seconds < first_day) {
        fputs("clocks: they don't tell the day: the run is dated as of now\n", stream);
        seconds = time(NULL);
    }
    gmtime_r(&seconds, &utc);
    strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

/* ---- loads ---- */

/* The tables that a hook in the program left among the spools; returns how many. */
static int each_table(const char *folder, bool removes) {
    MP_AUTO(files) struct mp_files files = {NULL, 0};
    mp_files_list(folder, ".csv", &files, NULL);
    if (removes)
        mp_files_remove(&files);
    return files.count;
}

/* Those that were found are no reason to lose a recording; those that were named are. */
static int read_loads(const struct mp_record_run *run, const struct record_process processes[],
                      int count, int ranks, FILE *stream, struct mp_record_loads *loads,
                      struct mp_error *error) {
    const bool are_found = run->loads.path == run->spools;
    int64_t first = INT64_MAX, last = -1;
    int code = MP_OK;
    if (!run->loads.path)
        return MP_OK;
    for (int i = 0; i < count; i++) {
        const struct mp_mapping_totals *own = processes[i].totals;
        first = own->iterations > 0 && own->first < first ? own->first : first;
        last = own->last > last ? own->last : last;
    }
    if (last < 0)
        code = mp_fail(error, MP_EINVAL,
                       "%s: the recording has no iterations to put its loads into; rules say what "
                       "ends one",
                       run->loads.path);
    else
        code = mp_record_loads_read(&run->loads, ranks, first, last, stream, loads, error);
    if (!code)
        fprintf(stream, "loads: %d iteration%s, %d layer%s, %d experts\n", loads->iterations,
                loads->iterations == 1 ? "" : "s", loads->layers, loads->layers == 1 ? "" : "s",
                loads->experts);
    if (!code || !are_found)
        return code;
    fprintf(stream, "loads: left out: %s\n", error->text);
    mp_record_loads_destroy(loads); /* what was read of them */
    *error = (struct mp_error){0};
    return MP_OK;
}

/* How many spans are combines by their order only (matches.h), as a fact; false: none. */
static bool tell_combines(const struct record_process processes[], int count, char text[24]) {
    int64_t combines = 0;
    for (int i = 0; i < count; i++)
        combines += processes[i].totals->combines;
    snprintf(text, 24, "%lld", (long long)combines);
    return combines > 0;
}

/* The name of its host; one that several hosts have gets a number from the second one on.  `name`
 * is room for it. */
static const char *name_host(const struct record_process processes[], int at, char name[64]) {
    const char *own = processes[at].totals->header.host;
    int before = 0;
    for (int host = 0; host < processes[at].host; host++) {
        int i = 0;
        while (processes[i].host != host)
            i++;
        before += strcmp(processes[i].totals->header.host, own) == 0;
    }
    if (before == 0)
        return own;
    snprintf(name, 64, "%.48s (%d)", own, before + 1);
    return name;
}

/* The mapped spools of processes that have their ranks, with the loads of these. */
static int write_mapped(const struct mp_record_run *run, struct record_process processes[],
                        int count, int ranks, FILE *stream, struct mp_error *error) {
    MP_AUTO(record_loads) struct mp_record_loads loads = {0};
    MP_TRY(read_loads(run, processes, count, ranks, stream, &loads, error));
    for (int i = 0; i < count; i++) {
        const struct record_process *own = &processes[i];
        char name[64];
        const struct mp_mapped as = {.rank = own->rank,
                                     .ranks = ranks,
                                     .node = run->importer ? 0 : own->host,
                                     .host = name_host(processes, i, name),
                                     .realtime_ns = own->realtime_ns,
                                     .sample = own->sample,
                                     .samples = own->samples,
                                     .loads = &loads};
        unlink(own->mapped); /* of an attempt that failed */
        MP_TRY(mp_mapping_write(own->mapping, own->mapped, &as, error));
    }
    return MP_OK;
}

static int ingest(struct mp_store *store, const struct mp_record_run *run, const char *job,
                  struct record_process processes[], int count, FILE *stream, int64_t *run_id,
                  struct meetings_found *found, struct mp_error *error) {
    MP_AUTO(arena) struct mp_arena memory = {0};
    const char **paths = mp_arena_take(&memory, (size_t)count, sizeof *paths);
    char command[COMMAND_BYTES], reason[128], started_at[32], invocation[64];
    int64_t iterations = 0;
    int nodes = 0, ranks = record_processes_rank(run, processes, count, &nodes);
    MP_TRY(mp_arena_check(&memory, error));
    MP_TRY(record_meetings_align(run, processes, count, nodes, found, error));
    for (int i = 0; i < count; i++) {
        paths[i] = processes[i].mapped;
        iterations = processes[i].totals->iterations > iterations ? processes[i].totals->iterations
                                                                  : iterations;
    }
    MP_TRY(write_mapped(run, processes, count, ranks, stream, error));
    join_command(run, command);
    format_start(processes, count, stream, started_at);
    snprintf(invocation, sizeof invocation, "%s-%d", started_at, (int)getpid());
    if (run->importer)
        snprintf(reason, sizeof reason, "a file ends before its recording: v_rank says which");
    else if (run->is_earlier)
        snprintf(reason, sizeof reason,
                 "nobody saw its end, and not every process recorded its own");
    else
        snprintf(reason, sizeof reason, "the command ended with exit status %d", run->status);
    char combines[24];
    const struct mp_store_fact by_order = {"record.combines-by-order", combines};
    const struct mp_store_run described = {.suite = run->importer ? "import" : "record",
                                           .job = job,
                                           .suite_run = invocation,
                                           .system = run->system ? run->system
                                                                 : mp_file_name(run->command[0]),
                                           .executor = "measured",
                                           .workload = run->workload ? run->workload : "recorded",
                                           .status = run->is_earlier    ? "interrupted"
                                                     : run->status == 0 ? "complete"
                                                                        : "failed",
                                           .reason = run->is_earlier || run->status ? reason : NULL,
                                           .unless_completed = run->is_earlier,
                                           .started_at = started_at,
                                           .job_text = run->job_text,
                                           .command = command,
                                           .ranks = ranks,
                                           .nodes = nodes,
                                           .ranks_per_node = (ranks + nodes - 1) / nodes,
                                           .iterations_wanted = iterations,
                                           .fact = &by_order,
                                           .facts = tell_combines(processes, count, combines)};
    return mp_store_ingest(store, &described, paths, count, run_id, error);
}

/* ---- what is said ---- */

static void say_totals(const struct record_process processes[], int count, FILE *stream) {
    struct mp_mapping_totals sum = {0};
    double worst = 0, pair_ns = 0, longest = 0;
    for (int i = 0; i < count; i++) {
        const struct mp_mapping_totals *one = processes[i].totals;
        sum.ranges += one->ranges;
        sum.spans += one->spans;
        sum.combines += one->combines;
        sum.counted += one->counted;
        sum.enclosed += one->enclosed;
        sum.unfinished += one->unfinished;
        sum.unmatched_ends += one->unmatched_ends;
        sum.lost += one->lost;
        double share = one->seconds >= shortest_seconds
                           ? (double)one->ranges * one->pair_ns * 1e-9 / one->seconds
                           : 0;
        longest = one->seconds > longest ? one->seconds : longest;
        worst = share > worst ? share : worst;
        pair_ns = one->pair_ns > pair_ns ? one->pair_ns : pair_ns;
    }
    fprintf(stream, "%lld range%s, %lld became spans", (long long)sum.ranges,
            sum.ranges == 1 ? "" : "s", (long long)sum.spans);
    if (sum.enclosed > 0)
        fprintf(stream, ", %lld lie in one", (long long)sum.enclosed);
    fputs("\n", stream);
    if (sum.combines > 0)
        fprintf(stream,
                "exchanges: no range is a combine by its name; %lld behind experts are called "
                "combine and those before dispatch, by their order\n",
                (long long)sum.combines);
    if (sum.counted > 0)
        fprintf(stream,
                "exchanges: no range tells dispatch from combine: all %lld are called dispatch and "
                "counted as layers, which are not the model's; ranges of experts tell it\n",
                (long long)sum.counted);
    if (sum.unmatched_ends + sum.unfinished + sum.lost > 0)
        fprintf(stream,
                "the program: ends without a beginning %lld, ranges left open %lld, too many at a "
                "time and not recorded %lld\n",
                (long long)sum.unmatched_ends, (long long)sum.unfinished, (long long)sum.lost);
    if (pair_ns > 0 && longest >= shortest_seconds)
        fprintf(stream,
                "cost: %.0f ns for a range (measured), at most %.3f %% of any process's time\n",
                pair_ns, 100 * worst);
    else if (pair_ns > 0)
        fprintf(stream, "cost: %.0f ns for a range (measured)\n", pair_ns);
}

static void say_hint(const struct record_process processes[], int count, const char *advice,
                     FILE *stream) {
    for (int i = 0; i < count; i++) {
        int64_t times;
        char text[101];
        const char *name = mp_mapping_unmatched(processes[i].mapping, &times);
        if (!name)
            continue;
        mp_clean_text(text, sizeof text, name);
        fprintf(stream,
                "no rule matches \"%s\" (%lld time%s), the most frequent of such ranges%s\n", text,
                (long long)times, times == 1 ? "" : "s", advice);
        return;
    }
}

/* Says what the ranges are taken for, and writes rules for them. */
static int say_suggestion(const struct mp_record_run *run, const struct mp_suggestion *suggestion,
                          FILE *stream, struct mp_error *error) {
    char file[PATH_SIZE];
    MP_TRY(mp_suggestion_write(suggestion, run->suggested, run->resume, error));
    fputs("\nwhat the ranges are called, and what they are taken for:\n", stream);
    mp_suggestion_say(suggestion, stream);
    mp_shell_word(file, sizeof file, run->suggested);
    fprintf(stream, "\n%s has rules for them.  Look at the phases, then:\n  %s --rules %s\n\n",
            file, run->resume, file);
    return MP_OK;
}

/* What is proposed, where the rules in use leave the model out; NULL: nothing. */
static int suggest(const struct mp_record_run *run, const struct record_processes *processes,
                   struct mp_suggestion **suggestion, struct mp_error *error) {
    MP_AUTO(arena) struct mp_arena memory = {0};
    const char **paths = mp_arena_take(&memory, (size_t)processes->count, sizeof *paths);
    int64_t spans = 0, of_model = 0, iterations = 0;
    MP_TRY(mp_arena_check(&memory, error));
    for (int i = 0; i < processes->count; i++) {
        paths[i] = processes->item[i].path;
        spans += processes->item[i].totals->spans;
        of_model += processes->item[i].totals->of_model;
        iterations += processes->item[i].totals->iterations;
    }
    if (run->suggested && !processes->without_ranges &&
        (of_model == 0 || iterations == 0 || run->suggest))
        MP_TRY(mp_suggestion_create(paths, processes->count, run->rules, suggestion, error));
    if (*suggestion && !run->suggest && spans > 0 && mp_suggestion_guesses(*suggestion) == 0) {
        mp_suggestion_destroy(*suggestion);
        *suggestion = NULL;
    }
    return MP_OK;
}

static void say_clocks(const struct meetings_found *found, int count, FILE *stream) {
    const struct meeting_summary *clocks = &found->clocks;
    if (found->hosts == 1 && count > 1)
        fprintf(stream, "clocks: all processes have this host's\n");
    if (clocks->aligned > 0)
        fprintf(stream,
                "clocks: %d hosts, put beside one another by %lld %s%s%s: known to within %.3g ms; "
                "their wall clocks are up to %.3f s apart\n",
                found->hosts - found->apart, (long long)clocks->matched,
                *found->kind ? "ranges \"" : "collectives", found->kind, *found->kind ? "\"" : "",
                1e-6 * (double)clocks->error_ns, 1e-9 * (double)found->wall_apart_ns);
    if (found->apart > 0)
        fprintf(stream,
                "clocks: %d of %d hosts share no collective with the first: put beside it by their "
                "wall clocks; compare times of one host only\n",
                found->apart, found->hosts);
}

/* What the database says of single ranks: why something of theirs is missing.  Most say the same.
 */
static void say_notes(struct mp_store *store, int64_t run_id, FILE *stream) {
    mp_record_say(store,
                  "SELECT 'rank ' || min(rank) || iif(count(*) > 1, printf(' and %d more', "
                  "count(*) - 1), '') || ': ' || reason FROM rank WHERE run_id = ? AND reason "
                  "IS NOT NULL GROUP BY reason ORDER BY min(rank)",
                  run_id, stream);
}

/* That a run was there already, which keeps the names it has.  `before`: the database's last run
 * then. */
static void say_known(struct mp_store *store, int64_t run_id, int64_t before, FILE *stream) {
    sqlite3_stmt *row = NULL;
    char system[101], workload[101];
    if (run_id > before ||
        mp_store_query(store, "SELECT system, workload FROM run WHERE run_id = ?", &run_id, 1, &row,
                       NULL))
        return;
    if (mp_store_next(store, row, NULL) == 1)
        fprintf(
            stream,
            "run %lld was there already, as system %s, workload %s: nothing is added, and it "
            "keeps these names; another database (--db FILE) takes it under others\n",
            (long long)run_id,
            mp_clean_text(system, sizeof system, (const char *)sqlite3_column_text(row, 0)),
            mp_clean_text(workload, sizeof workload, (const char *)sqlite3_column_text(row, 1)));
    sqlite3_finalize(row);
}

/* ---- all of it ---- */

static int keep_groups(struct mp_store *store, const struct mp_record_run *run,
                       struct record_processes *processes, FILE *stream, struct mp_error *error) {
    const char *job = mp_file_name(run->system ? run->system : run->command[0]);
    char others[256];
    int64_t run_id = 0, before;
    int spanned = 0;
    struct meetings_found found, of_others;
    MP_TRY(mp_store_numbers(store, "SELECT max(run_id) FROM run", NULL, 0, &before, 1, error));
    record_processes_sort(processes);
    while (spanned < processes->count && processes->item[spanned].totals->spans > 0)
        spanned++;
    int first = spanned > 0 ? spanned : processes->count, rest = processes->count - first;
    MP_TRY(ingest(store, run, job, processes->item, first, stream, &run_id, &found, error));
    fprintf(stream, "moeperf %s: run %lld of %s: %d process%s, ",
            run->importer ? "import" : "record", (long long)run_id, mp_store_path(store), first,
            first == 1 ? "" : "es");
    if (processes->without_ranges)
        fputs("no NVTX range\n", stream);
    else
        say_totals(processes->item, first, stream);
    say_known(store, run_id, before, stream);
    if (!run->importer) /* which knows better */
        say_clocks(&found, first, stream);
    say_hint(processes->item, first,
             run->suggested && !processes->proposed ? "; --suggest FILE.yaml proposes rules" : "",
             stream);
    say_notes(store, run_id, stream);
    MP_TRY(mp_devices_keep(store, run_id, run->spools, processes->keep_spools, stream, error));
    if (processes->without_ranges)
        fputs("without ranges there are no phases and no straggler report, only v_gpu and "
              "v_collective: annotate the program, or turn its annotation on, and record it "
              "again\n",
              stream);
    if (rest == 0)
        return MP_OK;
    snprintf(others, sizeof others, "%.200s (others)", job);
    struct mp_record_run without_loads = *run;
    without_loads.loads = (struct mp_record_loads_source){0};
    MP_TRY(ingest(store, &without_loads, others, processes->item + first, rest, stream, &run_id,
                  &of_others, error));
    fprintf(stream, "run %lld: %d more process%s, without a range that a rule matches\n",
            (long long)run_id, rest, rest == 1 ? "" : "es");
    say_notes(store, run_id, stream);
    return MP_OK;
}

static int find_and_keep(struct mp_store *store, const struct mp_record_run *run,
                         struct record_processes *processes, FILE *stream, struct mp_error *error) {
    struct mp_record_run with_loads = *run;
    if (!run->loads.path && each_table(run->spools, false) > 0)
        with_loads.loads.path = run->spools;
    MP_AUTO(suggestion) struct mp_suggestion *suggestion = NULL;
    MP_TRY(record_processes_find(run, processes, stream, error));
    if (run->is_earlier)
        MP_TRY(record_processes_check_ended(processes, error));
    if (run->is_merged)
        MP_TRY(record_processes_check_parts(processes, run->some_ranks, error));
    MP_TRY(suggest(run, processes, &suggestion, error));
    processes->proposed = suggestion != NULL;
    processes->keep_spools = run->keep_spools || suggestion;
    MP_TRY(keep_groups(store, &with_loads, processes, stream, error));
    return suggestion ? say_suggestion(run, suggestion, stream, error) : MP_OK;
}

int mp_record_keep(struct mp_store *store, const struct mp_record_run *run, FILE *stream,
                   struct mp_error *error) {
    MP_AUTO(processes) struct record_processes processes = {0};
    const bool is_users = run->is_earlier && !run->importer; /* the folder of the spools */
    int code = find_and_keep(store, run, &processes, stream, error);
    if (!code) {
        for (int i = 0; i < processes.count; i++) {
            unlink(processes.item[i].mapped);
            if (!processes.keep_spools)
                unlink(processes.item[i].path);
        }
        if (!processes.keep_spools)
            each_table(run->spools, true);
        if (!processes.keep_spools)
            rmdir(run->spools); /* stays where a file was left out */
    } else if ((is_users ? processes.count > 0 : rmdir(run->spools) != 0) && !run->importer &&
               !run->is_merged)
        fprintf(stream, "moeperf record: the spools are still in %s\n", run->spools);
    return code;
}
