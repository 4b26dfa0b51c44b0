/* What the spools in a folder hold, whole. */
#pragma once

#include <sys/wait.h>

#include "tests/spools.h"

enum { SPOOLS = 8, NAMES = 8192, RANGES = 200000 };

/* What one spool holds. */
struct content {
    int pid, rank;
    bool ended;
    char reason[768]; /* of its end */
    int ranges, names, schemas;
    struct mp_range *range; /* [RANGES] */
    int payload_bytes;      /* of all ranges */
    int twins;              /* ranges with two payloads of the same bytes */
    char *text[NAMES];      /* by id */
    int kind[NAMES];
    struct numbers counts;
};

static char folder[64];
static struct content spool[SPOOLS];
static int spools;

static inline void clear(void) {
    for (int i = 0; i < spools; i++) {
        for (int n = 0; n < NAMES; n++)
            free(spool[i].text[n]);
        free(spool[i].range);
    }
    memset(spool, 0, sizeof spool);
    spools = 0;
}

static inline bool has_twins(const struct mp_spool_record *record) {
    struct mp_range_payload first, second;
    const uint8_t *at = record->as.range.payload;
    size_t left = record->as.range.payload_bytes;
    return record->as.range.is.payloads == 2 && mp_range_next_payload(&at, &left, &first) &&
           mp_range_next_payload(&at, &left, &second) && first.schema == second.schema &&
           first.size == second.size && !memcmp(first.bytes, second.bytes, first.size);
}

static inline void keep(struct content *content, const struct mp_spool_record *record) {
    switch (record->type) {
    case MP_SPOOL_NAME:
        assert_true(record->as.name.id > 0 && record->as.name.id < NAMES);
        assert_null(content->text[record->as.name.id]);
        content->text[record->as.name.id] = strdup(record->as.name.text);
        content->kind[record->as.name.id] = (int)record->as.name.kind;
        content->names++;
        break;
    case MP_SPOOL_RANGE:
        assert_true(content->ranges < RANGES);
        content->range[content->ranges++] = record->as.range.is;
        content->payload_bytes += (int)record->as.range.payload_bytes;
        content->twins += has_twins(record);
        /* A name stands before what refers to it. */
        if (record->as.range.is.name)
            assert_non_null(content->text[record->as.range.is.name]);
        if (record->as.range.is.domain)
            assert_non_null(content->text[record->as.range.is.domain]);
        break;
    case MP_SPOOL_SCHEMA:
        content->schemas++;
        break;
    case MP_SPOOL_NUMBER:
        keep_number(&content->counts, record);
        break;
    case MP_SPOOL_END:
        content->ended = true;
        snprintf(content->reason, sizeof content->reason, "%s", record->as.end.reason);
        break;
    default:
        fail_msg("a record of type %d", (int)record->type);
    }
}

static inline void read_spool(const char *path, struct content *content) {
    AUTO(spool) struct mp_spool_reader *reader = open_spool(path);
    struct mp_spool_record record;
    content->range = malloc(RANGES * sizeof *content->range);
    content->pid = mp_spool_header(reader)->pid;
    content->rank = mp_spool_header(reader)->rank;
    while (next_record(reader, &record))
        keep(content, &record);
    assert_int_equal(mp_spool_unread(reader), 0);
}

/* Reads all spools and removes them. */
static inline void collect(void) {
    AUTO(files) glob_t found = files_with(folder, ".spool");
    clear();
    assert_true(found.gl_pathc <= SPOOLS);
    for (; spools < (int)found.gl_pathc; spools++) {
        read_spool(found.gl_pathv[spools], &spool[spools]);
        unlink(found.gl_pathv[spools]);
    }
}

static inline int count_of(const struct content *content, const char *name) {
    const double value = number_of(&content->counts, name);
    if (isnan(value))
        fail_msg("no count %s", name);
    return (int)value;
}

static inline const char *name_of(const struct content *content, const struct mp_range *range) {
    return range->name ? content->text[range->name] : "";
}

static inline int how_many(const struct content *content, const char *name) {
    int found = 0;
    for (int i = 0; i < content->ranges; i++)
        found += !strcmp(name_of(content, &content->range[i]), name);
    return found;
}

/* Runs a program under the collector; returns its wait status. */
static inline int run_program(char *const arguments[], const char *variable, const char *value) {
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("NVTX_INJECTION64_PATH", COLLECTOR, 1);
        setenv("MOEPERF_NVTX_SPOOLS", folder, 1);
        if (variable)
            setenv(variable, value, 1);
        execv(arguments[0], arguments);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    collect();
    return status;
}

static inline int make_folder(UNUSED void **state) {
    strcpy(folder, "/tmp/nvtx_collector_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(UNUSED void **state) {
    clear();
    return rmdir(folder);
}
