/* Spools as tests read them. */
#pragma once

#include <glob.h>

#include "profiler/record/spool.h"
#include "tests/errors.h"

TEST_END(spool, struct mp_spool_reader *, mp_spool_close(*it))
TEST_END(files, glob_t, globfree(it))

static inline struct mp_spool_reader *open_spool(const char *path) {
    struct mp_spool_reader *reader = NULL;
    assert_works(mp_spool_open(path, &reader, &error));
    return reader;
}

/* The next record; false: there is none. */
static inline bool next_record(struct mp_spool_reader *reader, struct mp_spool_record *record) {
    struct mp_error error = {0};
    int got = mp_spool_next(reader, record, &error);
    if (got < 0)
        fail_msg("%s", error.text);
    return got;
}

/* The next one of this type. */
static inline bool next_of(struct mp_spool_reader *reader, enum mp_spool_type type,
                           struct mp_spool_record *record) {
    while (next_record(reader, record))
        if (record->type == type)
            return true;
    return false;
}

/* The files of a folder whose names end so: gl_pathc of them at gl_pathv. */
static inline glob_t files_with(const char *folder, const char *ending) {
    char pattern[400];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s/*%s", folder, ending);
    glob(pattern, 0, NULL, &found);
    return found;
}

/* Numbers that a collector recorded of itself. */
struct numbers {
    struct {
        char name[48];
        double value;
    } number[32];
    int count;
};

static inline void keep_number(struct numbers *numbers, const struct mp_spool_record *record) {
    assert_true(numbers->count < 32);
    snprintf(numbers->number[numbers->count].name, 48, "%s", record->as.number.name);
    numbers->number[numbers->count++].value = record->as.number.value;
}

/* NAN: there is none. */
static inline double number_of(const struct numbers *numbers, const char *name) {
    for (int i = 0; i < numbers->count; i++)
        if (strcmp(numbers->number[i].name, name) == 0)
            return numbers->number[i].value;
    return NAN;
}
