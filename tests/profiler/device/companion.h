/* Reading what a collector has put into its companion spool. */
#pragma once

#include "tests/files.h"
#include "tests/spools.h"

enum { COMPANION_MOST = 4096, COMPANION_NAMES = 256 };

struct companion_contents {
    struct mp_spool_header header;
    struct mp_activity activity[COMPANION_MOST];
    struct mp_collective collective[COMPANION_MOST];
    struct mp_timer timer[COMPANION_MOST];
    int activities, collectives, timers, files;
    char names[COMPANION_NAMES][200]; /* by id */
    struct numbers numbers;
    char status[300];
    bool ended;
    size_t unread;
};

static char companion_folder[64];

static inline int companion_setup(UNUSED void **state) {
    strcpy(companion_folder, "/tmp/moeperf-device-XXXXXX");
    if (!mkdtemp(companion_folder))
        return -1;
    return setenv("MOEPERF_DEVICE_SPOOLS", companion_folder, 1);
}

static inline void companion_remove_files(void) {
    AUTO(files) glob_t found = files_with(companion_folder, "");
    for (size_t i = 0; i < found.gl_pathc; i++)
        unlink(found.gl_pathv[i]);
}

static inline int companion_teardown(UNUSED void **state) {
    return remove_tree(companion_folder);
}

static inline void companion_take(struct companion_contents *contents,
                                  const struct mp_spool_record *record) {
    size_t length;
    switch (record->type) {
    case MP_SPOOL_ACTIVITY:
        assert_true(contents->activities < COMPANION_MOST);
        contents->activity[contents->activities++] = record->as.activity;
        break;
    case MP_SPOOL_COLLECTIVE:
        assert_true(contents->collectives < COMPANION_MOST);
        contents->collective[contents->collectives++] = record->as.collective;
        break;
    case MP_SPOOL_TIMER:
        assert_true(contents->timers < COMPANION_MOST);
        contents->timer[contents->timers++] = record->as.timer;
        break;
    case MP_SPOOL_NAME:
        assert_in_range(record->as.name.id, 1, COMPANION_NAMES - 1);
        snprintf(contents->names[record->as.name.id], sizeof contents->names[0], "%s",
                 record->as.name.text);
        break;
    case MP_SPOOL_NUMBER:
        keep_number(&contents->numbers, record);
        break;
    case MP_SPOOL_TEXT:
        length = strlen(record->as.text.name);
        if (length > 7 && strcmp(record->as.text.name + length - 7, ".status") == 0)
            snprintf(contents->status, sizeof contents->status, "%s", record->as.text.value);
        break;
    case MP_SPOOL_END:
        contents->ended = true;
        break;
    default:
        break;
    }
}

/* Reads the one companion spool in the folder, and removes it; files says how many there were. */
static inline struct companion_contents *companion_read(void) {
    static struct companion_contents contents;
    struct mp_spool_record record;
    AUTO(files) glob_t found = files_with(companion_folder, ".device");
    memset(&contents, 0, sizeof contents);
    contents.files = (int)found.gl_pathc;
    if (!contents.files)
        return &contents;
    AUTO(spool) struct mp_spool_reader *reader = open_spool(found.gl_pathv[0]);
    contents.header = *mp_spool_header(reader);
    while (next_record(reader, &record))
        companion_take(&contents, &record);
    contents.unread = mp_spool_unread(reader);
    companion_remove_files();
    return &contents;
}
