/* Killed jobs: see killed.h. */
#include "harness/suite/killed.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/suite/command.h"
#include "harness/suite/files.h"
#include "harness/suite/launch.h"
#include "harness/suite/note.h"
#include "harness/suite/paths.h"
#include "reference/base/characters.h"

static int ingest(struct mp_store *store, const char *folder, const struct mp_store_run *run,
                  const struct mp_files *spools, FILE *stream, struct mp_error *error) {
    int64_t last = 0, run_id = 0;
    char job[256];
    MP_TRY(mp_store_numbers(store, "SELECT max(run_id) FROM run", NULL, 0, &last, 1, error));
    MP_TRY(mp_store_ingest(store, run, (const char *const *)spools->path, spools->count, &run_id,
                           error));
    fprintf(stream, "%s: job %s: %s run %lld of %s\n", folder,
            mp_clean_text(job, sizeof job, run->job), run_id > last ? "added as" : "is already",
            (long long)run_id, mp_store_path(store));
    return MP_OK;
}

/* What is known of the job, unless it still runs. */
static int read_note(const char *folder, struct mp_note *note, struct mp_error *error) {
    char path[MP_PATH_SIZE];
    if (mp_note_is_held(folder))
        return mp_fail(error, MP_EINVAL,
                       "%s: still runs; its moeperf adds it, or wait until its ranks have ended",
                       folder);
    MP_TRY(mp_path_join(path, folder, MP_NOTE_NAME, error));
    return mp_note_read(path, note, error);
}

static int keep_job(struct mp_store *store, const char *folder, const struct mp_hosts *hosts,
                    FILE *stream, struct mp_error *error) {
    char recordings[MP_PATH_SIZE], slices[MP_PATH_SIZE], job[256];
    struct mp_note note = {.document = NULL};
    struct mp_files spools = {NULL, 0};
    struct mp_store_slice *slice = NULL;
    int code = read_note(folder, &note, error);
    if (!code)
        code = mp_path_join(recordings, folder, "spools", error);
    if (!code)
        code = mp_path_join(slices, folder, MP_SLICES_NAME, error);
    if (!code)
        code = mp_slices_read(slices, &slice, &note.run.slices, error);
    note.run.slice = slice;
    if (!code)
        code = mp_hosts_gather(hosts, recordings, error);
    if (!code && !access(recordings, F_OK))
        code = mp_files_list(recordings, NULL, &spools, error);
    bool has_ended = note.run.status != NULL;
    if (!has_ended) {
        note.run.status = "interrupted";
        note.run.reason = "moeperf was killed";
        note.run.unless_completed = true;
    }
    if (!code && (has_ended || mp_files_hold_anything(&spools)))
        code = ingest(store, folder, &note.run, &spools, stream, error);
    else if (!code)
        fprintf(stream, "%s: job %s: nothing was recorded\n", folder,
                mp_clean_text(job, sizeof job, note.run.job));
    mp_files_free(&spools);
    mp_note_destroy(&note);
    free(slice);
    return code;
}

/* Whether this is the folder of a job that nobody has put into a database. */
static bool has_note(const char *folder) {
    char path[MP_PATH_SIZE];
    struct mp_error unused = {0};
    return !mp_path_join(path, folder, MP_NOTE_NAME, &unused) && !access(path, F_OK);
}

/* The folders of jobs with a note: `folder` itself or those in it, by name. */
static int find_jobs(const char *folder, struct mp_files *jobs, struct mp_error *error) {
    struct mp_files entries = {NULL, 0};
    if (has_note(folder))
        return mp_files_add(jobs, folder, error);
    int code = mp_files_list(folder, NULL, &entries, error);
    for (int i = 0; i < entries.count && !code; i++)
        if (has_note(entries.path[i]))
            code = mp_files_add(jobs, entries.path[i], error);
    mp_files_free(&entries);
    if (!code && jobs->count == 0)
        code = mp_fail(error, MP_ENOTFOUND,
                       "%s: no job to add: neither it nor a folder in it has a " MP_NOTE_NAME
                       ", which moeperf run leaves of a job that it could not add",
                       folder);
    return code;
}

int mp_suite_check_killed(const char *folder, struct mp_error *error) {
    struct mp_note note = {.document = NULL};
    struct mp_files jobs = {NULL, 0};
    int code = find_jobs(folder, &jobs, error);
    if (!code)
        code = read_note(jobs.path[0], &note, error);
    mp_note_destroy(&note);
    mp_files_free(&jobs);
    return code;
}

char *mp_suite_killed_command(const char *folder, const char *database,
                              const struct mp_hosts *hosts) {
    const bool is_copied = hosts && hosts->copy;
    const char *const words[] = {"moeperf", "run",
                                 "--from",  folder,
                                 "--db",    database,
                                 "--hosts", hosts ? hosts->file : "",
                                 "--copy",  is_copied ? hosts->copy : ""};
    enum { WORDS = sizeof words / sizeof *words, OF_HOSTS = 4 };
    const struct mp_command command = {.word = (char **)(uintptr_t)words,
                                       .count = is_copied ? WORDS : WORDS - OF_HOSTS};
    return mp_command_text(&command);
}

int mp_suite_keep_killed(struct mp_store *store, const char *folder, const struct mp_hosts *hosts,
                         FILE *stream, struct mp_error *error) {
    struct mp_files jobs = {NULL, 0};
    int code = find_jobs(folder, &jobs, error);
    for (int i = 0; !code && i < jobs.count; i++)
        code = keep_job(store, jobs.path[i], hosts, stream, error);
    mp_files_free(&jobs);
    return code;
}
