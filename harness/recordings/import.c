#include <libgen.h>
#include <unistd.h>

#include "harness/record/parts.h"
#include "harness/recordings/recordings.h"

static void say_summary(const struct mp_recordings *recordings,
                        const struct mp_recording_summary *summary, FILE *stream) {
    fprintf(stream, "moeperf import: %d file%s (%s): %lld range%s", recordings->paths,
            recordings->paths == 1 ? "" : "s", recordings->format->name, (long long)summary->ranges,
            summary->ranges == 1 ? "" : "s");
    if (summary->activities > 0)
        fprintf(stream, ", %lld calls and GPU activities", (long long)summary->activities);
    if (summary->collectives > 0)
        fprintf(stream, ", %lld collectives", (long long)summary->collectives);
    fputs("\n", stream);
}

static void say_clocks(int processes, const struct meeting_summary *summary, FILE *stream) {
    const int first = summary->on_first_host > 0 ? summary->on_first_host : 1;
    const int apart = processes - first - summary->aligned;
    if (processes > 1 && first == processes)
        fputs("clocks: all processes have one host's\n", stream);
    if (apart > 0)
        fprintf(stream,
                "clocks: %d of %d processes share no collective with the first: their times are "
                "taken as they are\n",
                apart, processes);
    if (summary->aligned > 0 && summary->offset_ns == 0)
        fprintf(stream, "clocks: one clock, as %lld collectives say to within %.3g ms\n",
                (long long)summary->matched, 1e-6 * (double)summary->error_ns);
    else if (summary->aligned > 0)
        fprintf(stream,
                "clocks: put beside one another by %lld collectives: up to %.3f ms apart, known to "
                "within %.3g ms\n",
                (long long)summary->matched, 1e-6 * (double)summary->offset_ns,
                1e-6 * (double)summary->error_ns);
}

static int add_run(const struct mp_recordings *recordings, const char *folder,
                   void (*opened)(struct mp_store *), FILE *stream, struct mp_error *error) {
    MP_AUTO(store) struct mp_store *store = NULL;
    char *const name[] = {(char *)(uintptr_t)recordings->path[0], NULL};
    struct mp_record_run run = recordings->run;
    run.command = name;
    run.spools = folder;
    run.importer = recordings->format->name;
    run.system = run.system ? run.system : recordings->format->name;
    run.is_earlier = true;
    MP_TRY(mp_store_open(recordings->database, &store, error));
    if (opened)
        opened(store);
    return mp_record_keep(store, &run, stream, error);
}

static int import(const struct mp_recordings *recordings, const char *folder,
                  void (*opened)(struct mp_store *), FILE *stream, struct mp_error *error) {
    MP_AUTO(recording) struct mp_recording *recording = NULL;
    struct mp_recording_summary summary;
    MP_TRY(mp_recording_create(folder, recordings->format->name, &recording, error));
    for (int i = 0; i < recordings->paths; i++)
        MP_TRY(
            recordings->format->read(recordings->path[i], recordings->run.rules, recording, error));
    MP_TRY(mp_recording_finish(recording, &summary, error));
    if (summary.ranges == 0)
        return mp_fail(error, MP_EFORMAT, "%s: no range of any thread is in it%s%s%s",
                       recordings->path[0], recordings->paths > 1 ? ", nor in the others" : "",
                       summary.cut ? "; " : "", summary.cut ? summary.cut : "");
    say_summary(recordings, &summary, stream);
    say_clocks(summary.processes, &summary.clocks, stream);
    return add_run(recordings, folder, opened, stream, error);
}

int mp_recordings_import(const struct mp_recordings *recordings, void (*opened)(struct mp_store *),
                         FILE *stream, struct mp_error *error) {
    char folder[MP_PATH_SIZE], path[MP_PATH_SIZE];
    snprintf(path, sizeof path, "%s", recordings->database);
    const char *parent = dirname(path);
    const bool is_new = access(parent, F_OK);
    MP_TRY(mp_parts_create_folder(recordings->database, "import", folder, error));
    int code = import(recordings, folder, opened, stream, error);
    mp_parts_remove_folder(folder);
    if (code && is_new)
        rmdir(parent); /* nothing came of it */
    return code;
}
