#include "harness/record/processes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/record/devices.h"
#include "harness/suite/files.h"
#include "harness/suite/processes.h"
#include "reference/base/arena.h"

enum { RANKS_LIMIT = 65536, SAME_HOST_NS = 1000000000 };

/* ---- which processes there are ---- */

static int compare_processes(const void *left, const void *right) {
    const struct mp_spool_header *a = &((const struct record_process *)left)->totals->header,
                                 *b = &((const struct record_process *)right)->totals->header;
    const bool a_has_spans = ((const struct record_process *)left)->totals->spans > 0,
               b_has_spans = ((const struct record_process *)right)->totals->spans > 0;
    if (a_has_spans != b_has_spans)
        return a_has_spans ? -1 : 1;
    return MP_ORDER(a->realtime_ns, b->realtime_ns) ?: MP_ORDER(a->pid, b->pid);
}

static int add_process(const struct mp_record_run *run, const char *path,
                       struct record_processes *processes, struct mp_error *error) {
    MP_TRY(MP_GROW(processes->item, processes->count, error));
    struct record_process *process = &processes->item[processes->count];
    *process = (struct record_process){.rank = -1};
    if (snprintf(process->path, RECORD_PATH_SIZE, "%s", path) >= RECORD_PATH_SIZE - 8)
        return mp_fail(error, MP_ELIMIT, "%.200s...: the path is too long", run->spools);
    process->part = run->is_merged ? atoi(mp_file_name(path)) : 0;
    snprintf(process->mapped, RECORD_PATH_SIZE, "%.*s.mapped", RECORD_PATH_SIZE - 8, process->path);
    MP_TRY(mp_mapping_create(process->path, run->rules, &process->mapping, error));
    process->totals = mp_mapping_totals(process->mapping);
    process->realtime_ns = process->totals->header.realtime_ns;
    processes->count++;
    return MP_OK;
}

/* The processes of all files with this ending.  stream: NULL where others say what is damaged. */
static int add_processes(const struct mp_record_run *run, const char *ending,
                         struct record_processes *processes, FILE *stream, struct mp_error *error) {
    MP_AUTO(files) struct mp_files files = {NULL, 0};
    MP_TRY(mp_files_list(run->spools, ending, &files, error));
    for (int i = 0; i < files.count; i++) {
        struct mp_error damaged = {0};
        int code = add_process(run, files.path[i], processes, &damaged);
        if (code && code != MP_EFORMAT && code != MP_EVERSION) /* killed before its header, say */
            return mp_fail(error, code, "%s", damaged.text);
        if (code && stream)
            fprintf(stream, "moeperf record: left out: %s\n", damaged.text);
    }
    return MP_OK;
}

/* Hosts may have one name and be several: parts of one have a clock that began at one time. */
static bool is_host(const struct record_process *process, const struct mp_spool_header *b,
                    int part) {
    const struct mp_spool_header *a = &process->totals->header;
    const double apart_ns = ((double)a->realtime_ns - (double)a->monotonic_ns) -
                            ((double)b->realtime_ns - (double)b->monotonic_ns);
    return strcmp(a->host, b->host) == 0 &&
           (process->part == part || (apart_ns < SAME_HOST_NS && -apart_ns < SAME_HOST_NS));
}

bool record_process_is(const struct record_process *process, const struct mp_spool_header *header,
                       int part) {
    return process->totals->header.pid == header->pid && is_host(process, header, part);
}

/* Several collectors may have been in one process: what began first stands for it, wherever the
 * files are and in whatever order they are found. */
static void merge_collectors(struct record_processes *processes) {
    int count = 0;
    MP_SORT(processes->item, processes->count, compare_processes);
    for (int i = 0; i < processes->count; i++) {
        int same = 0;
        while (same < count &&
               !record_process_is(&processes->item[same], &processes->item[i].totals->header,
                                  processes->item[i].part))
            same++;
        if (same == count)
            processes->item[count++] = processes->item[i];
        else
            mp_mapping_destroy(processes->item[i].mapping);
    }
    processes->count = count;
}

int record_processes_find(const struct mp_record_run *run, struct record_processes *processes,
                          FILE *stream, struct mp_error *error) {
    MP_TRY(add_processes(run, ".spool", processes, stream, error));
    if (processes->count > 0)
        return MP_OK;
    MP_TRY(add_processes(run, MP_DEVICE_ENDING, processes, NULL, error));
    if (processes->count == 0)
        return mp_fail(error, MP_ENOTFOUND,
                       "%s: no process has made an NVTX range or used a GPU that was recorded, so "
                       "there is no run.  Python has ranges by nvtx.annotate(\"experts\"), PyTorch "
                       "by moeperf_experts.annotate() (moeperf show moeperf_experts.py).  Where a "
                       "program has some: is its annotation turned on, and does it keep "
                       "NVTX_INJECTION64_PATH?",
                       run->command[0]);
    processes->without_ranges = true;
    merge_collectors(processes);
    return MP_OK;
}

/* Where a part's file lies. */
static const char *place_of(const struct record_process *process, char path[RECORD_PATH_SIZE]) {
    ssize_t length = readlink(process->path, path, RECORD_PATH_SIZE - 1);
    snprintf(path + (length > 0 ? length : 0), length > 0 ? 1 : RECORD_PATH_SIZE, "%s",
             length > 0 ? "" : process->path);
    return path;
}

/* Whether one of them still records, as far as that can be seen on this host. */
int record_processes_check_ended(const struct record_processes *processes, struct mp_error *error) {
    char host[sizeof processes->item->totals->header.host] = "", path[RECORD_PATH_SIZE];
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < processes->count; i++) {
        const struct mp_mapping_totals *own = processes->item[i].totals;
        if (!own->ended && !strcmp(own->header.host, host) &&
            mp_processes_runs_since(own->header.pid, own->header.realtime_ns))
            return mp_fail(
                error, MP_EINVAL,
                "%s: process %d still runs and records into it; add it when it has ended",
                place_of(&processes->item[i], path), own->header.pid);
    }
    return MP_OK;
}

void record_processes_free(struct record_processes *processes) {
    for (int i = 0; i < processes->count; i++)
        mp_mapping_destroy(processes->item[i].mapping);
    free(processes->item);
}

/* ---- parts ---- */

/* Two processes of different parts. */
static int check_pair(const struct record_process *left, const struct record_process *right,
                      struct mp_error *error) {
    const struct mp_spool_header *a = &left->totals->header, *b = &right->totals->header;
    const char *of = left->totals->launch, *other = right->totals->launch;
    char first[RECORD_PATH_SIZE], second[RECORD_PATH_SIZE];
    if (record_process_is(left, b, right->part) && a->monotonic_ns == b->monotonic_ns)
        return mp_fail(error, MP_EINVAL,
                       "%s and %s are one recording; each part is to be named once",
                       place_of(left, first), place_of(right, second));
    if (*of && *other && strcmp(of, other) != 0)
        return mp_fail(error, MP_EINVAL,
                       "%s is of run %s and %s of run %s, as their launchers called them; the "
                       "parts of one run are right",
                       place_of(left, first), of, place_of(right, second), other);
    if (a->rank >= 0 && a->rank == b->rank)
        return mp_fail(error, MP_EINVAL,
                       "rank %d is there twice, on host %s in %s and on host %s in %s; the parts "
                       "of one run, with ranks that count over all hosts, are right",
                       a->rank, a->host, place_of(left, first), b->host, place_of(right, second));
    return MP_OK;
}

/* How many ranks the launchers spoke of, or 0; a header that knows no more than its own rank says
 * one more than that. */
static int check_worlds(const struct record_processes *processes, int *ranks,
                        struct mp_error *error) {
    const struct record_process *item = processes->item;
    char first[RECORD_PATH_SIZE], second[RECORD_PATH_SIZE];
    int largest = 0;
    *ranks = 0;
    for (int i = 0; i < processes->count; i++) {
        const int known = item[i].totals->header.ranks;
        largest = known > *ranks && known <= RANKS_LIMIT ? i : largest;
        *ranks = item[largest].totals->header.ranks;
    }
    for (int i = 0; i < processes->count; i++) {
        const struct mp_spool_header *own = &item[i].totals->header;
        if (own->ranks != *ranks && own->ranks > own->rank + 1)
            return mp_fail(error, MP_EINVAL,
                           "%s is of a run of %d ranks and %s of one of %d; the parts of one run "
                           "are right",
                           place_of(&item[i], first), own->ranks, place_of(&item[largest], second),
                           *ranks);
    }
    return MP_OK;
}

static int check_missing(const struct record_processes *processes, int ranks,
                         struct mp_error *error) {
    ranks = ranks > 0 && ranks <= RANKS_LIMIT ? ranks : 0;
    MP_AUTO(memory) bool *is_there = NULL;
    int missing = 0, first = 0;
    MP_TRY(MP_NEW(is_there, (size_t)ranks + 1, error));
    for (int i = 0; i < processes->count; i++) {
        const int rank = processes->item[i].totals->header.rank;
        if (rank >= 0 && rank < ranks)
            is_there[rank] = true;
    }
    for (int rank = ranks; rank-- > 0;) {
        missing += !is_there[rank];
        first = is_there[rank] ? first : rank;
    }
    if (missing == 0)
        return MP_OK;
    return mp_fail(error, MP_EINVAL,
                   "of %d ranks %d recorded no range or their part is not here, the first is rank "
                   "%d; the parts of all hosts are right, or --some-ranks for those that are there",
                   ranks, missing, first);
}

int record_processes_check_parts(const struct record_processes *processes, bool some_ranks,
                                 struct mp_error *error) {
    int ranks = 0;
    for (int i = 0; i < processes->count; i++)
        for (int j = 0; j < i; j++)
            if (processes->item[i].part != processes->item[j].part)
                MP_TRY(check_pair(&processes->item[j], &processes->item[i], error));
    MP_TRY(check_worlds(processes, &ranks, error));
    return some_ranks ? MP_OK : check_missing(processes, ranks, error);
}

void record_processes_sort(struct record_processes *processes) {
    MP_SORT(processes->item, processes->count, compare_processes);
}

/* ---- ranks and hosts ---- */

/* Who imports files of some ranks knows of the others, and so do the parts of a recording. */
static int assign_ranks(const struct mp_record_run *run, struct record_process process[],
                        int count) {
    int ranks = 0;
    for (int i = 0; i < count; i++) {
        const int known = process[i].totals->header.ranks;
        if ((run->importer || run->is_merged) && known <= RANKS_LIMIT && known > ranks)
            ranks = known;
        int wanted = process[i].totals->header.rank;
        if (wanted < 0 || wanted >= RANKS_LIMIT || MP_ANY(k, i, process[k].rank == wanted))
            continue;
        process[i].rank = wanted;
        ranks = wanted >= ranks ? wanted + 1 : ranks;
    }
    for (int i = 0; i < count; i++)
        if (process[i].rank < 0)
            process[i].rank = ranks++;
    return ranks;
}

MP_COMPARE(compare_ranks, struct record_process, MP_ORDER(a->rank, b->rank))

int record_processes_rank(const struct mp_record_run *run, struct record_process process[],
                          int count, int *hosts) {
    const int ranks = assign_ranks(run, process, count);
    MP_SORT(process, count, compare_ranks);
    *hosts = 0;
    for (int i = 0; i < count; i++) {
        int before = 0;
        while (!is_host(&process[before], &process[i].totals->header, process[i].part))
            before++;
        process[i].host = before == i ? (*hosts)++ : process[before].host;
    }
    return ranks;
}
