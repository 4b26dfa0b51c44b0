/* Arbitrary bytes as a file of each kind of recording: the readers end, say what is wrong, and what
 * they wrote are spools that hold together.  The first byte chooses the kind. */
#include <string.h>
#include <unistd.h>

#include "harness/recordings/recordings.h"
#include "tests/fuzz/expect.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

static const char rules_text[] = "rules:\n"
                                 "  - {name: \"ProfilerStep#{iteration}\", phase: iteration}\n"
                                 "  - {name: \"*linear\", phase: expert}\n";

/* Writes a file of nothing but these bytes, in memory, which SQLite can open by its name, too. */
static void make_file(const uint8_t *bytes, size_t size, const char *path) {
    FILE *file = fopen(path, "w");
    expect(file && fwrite(bytes, 1, size, file) == size && !fclose(file), "a file in memory");
}

static void read_spool(const char *folder, const char *name, int64_t expected) {
    char path[128];
    struct mp_spool_reader *reader = NULL;
    struct mp_spool_record record;
    struct mp_error error = {0};
    int64_t ranges = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (mp_spool_open(path, &reader, &error))
        return; /* no process */
    while (mp_spool_next(reader, &record, &error) == 1)
        ranges += record.type == MP_SPOOL_RANGE;
    expect(mp_spool_unread(reader) == 0, "whole records");
    expect(ranges == expected, "as many ranges as were counted");
    mp_spool_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size) {
    static char folder[] = "/dev/shm/moeperf-fuzz-XXXXXX";
    static struct mp_rules rules;
    struct mp_error error = {0};
    struct mp_recording *recording = NULL;
    struct mp_recording_summary summary;
    char path[64];
    int kinds = 0;
    if (size == 0)
        return 0;
    if (!rules.count) {
        expect(mkdtemp(folder) != NULL, "a folder");
        expect(!mp_rules_parse("rules", rules_text, sizeof rules_text - 1, &rules, &error),
               "rules");
    }
    while (mp_recording_formats[kinds])
        kinds++;
    const struct mp_recording_format *format = mp_recording_formats[input[0] % kinds];
    snprintf(path, sizeof path, "%s.rank3", folder);
    make_file(input + 1, size - 1, path);
    expect(!mp_recording_create(folder, "fuzz", &recording, &error), "a recording");
    int code = format->read(path, &rules, recording, &error);
    expect_sentence(code, &error);
    if (!code) {
        expect(!mp_recording_finish(recording, &summary, &error), "a recording ends");
        if (summary.processes == 1)
            read_spool(folder, "0.spool", summary.ranges);
    }
    mp_recording_destroy(recording);
    unlink(path);
    return 0;
}
