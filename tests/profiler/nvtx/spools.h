/* What the spools in a folder hold, whole. */
#ifndef MOEPERF_TESTS_PROFILER_NVTX_SPOOLS_H
#define MOEPERF_TESTS_PROFILER_NVTX_SPOOLS_H

#include <dirent.h>
#include <limits.h>
#include <sys/wait.h>

#include "profiler/record/spool.h"
#include "tests/support.h"

enum { SPOOLS = 8, NAMES = 8192, RANGES = 200000, COUNTS = 16 };

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
    struct {
        char name[48];
        double value;
    } count[COUNTS];
    int counts;
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
        assert_true(content->counts < COUNTS);
        snprintf(content->count[content->counts].name, 48, "%s", record->as.number.name);
        content->count[content->counts++].value = record->as.number.value;
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
    struct mp_spool_reader *reader;
    struct mp_spool_record record;
    struct mp_error error = {0};
    content->range = malloc(RANGES * sizeof *content->range);
    assert_int_equal(mp_spool_open(path, &reader, &error), MP_OK);
    content->pid = mp_spool_header(reader)->pid;
    content->rank = mp_spool_header(reader)->rank;
    while (mp_spool_next(reader, &record, &error) == 1)
        keep(content, &record);
    assert_int_equal(error.code, MP_OK);
    assert_int_equal(mp_spool_unread(reader), 0);
    mp_spool_close(reader);
}

/* Reads all spools and removes them. */
static inline void collect(void) {
    struct dirent *entry;
    DIR *listing = opendir(folder);
    clear();
    while ((entry = readdir(listing))) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strstr(entry->d_name, ".spool")) {
            assert_true(spools < SPOOLS);
            read_spool(path, &spool[spools++]);
            unlink(path);
        }
    }
    closedir(listing);
}

static inline double count_of(const struct content *content, const char *name) {
    for (int i = 0; i < content->counts; i++)
        if (!strcmp(content->count[i].name, name))
            return content->count[i].value;
    fail_msg("no count %s", name);
    return -1;
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

static inline int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/nvtx_collector_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state) {
    (void)state;
    clear();
    return rmdir(folder);
}

#endif
