/* Spools of made ranges, and the rules that are proposed for them, read back. */
#pragma once

#include "harness/record/suggest.h"

#include "harness/record/mapping.h"
#include "profiler/record/format.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/records.h"

#define RANGES_T0 1000000000 /* ns */
enum { RANGES_RANKS = 4, RANGES_NAMES = 1 << 15, RANGES_TEXT = 1 << 20 };

struct ranges {
    char folder[32], file[64], path[RANGES_RANKS][64];
    int ranks;
    struct mp_rules in_use, rules; /* rules: that are proposed, as they read back */
    struct mp_recorder *recorder;
    struct mp_record_thread *thread;
    char *name[RANGES_NAMES]; /* by id, of the spool that is being written */
    uint32_t names;
    char text[RANGES_TEXT]; /* the rules file */
};

static inline int ranges_set_up(void **state) {
    static struct ranges ranges;
    ranges = (struct ranges){.folder = "/tmp/moeperf-test-XXXXXX"};
    assert_non_null(mkdtemp(ranges.folder));
    snprintf(ranges.file, sizeof ranges.file, "%s/rules.yaml", ranges.folder);
    *state = &ranges;
    return 0;
}

static inline int ranges_tear_down(void **state) {
    struct ranges *ranges = *state;
    mp_rules_destroy(&ranges->in_use);
    mp_rules_destroy(&ranges->rules);
    return remove_tree(ranges->folder);
}

#define RANGES_TEST(function)                                                                      \
    TEST_TAKING(function, struct ranges *ranges, ranges_set_up, ranges_tear_down, 1, #function,    \
                NULL)

static inline void ranges_end(struct ranges *ranges) {
    assert_works(mp_recorder_finish(&ranges->recorder, MP_OK, NULL, &error));
    for (; ranges->names; ranges->names--)
        free(ranges->name[ranges->names]);
}

/* After the rank before has ended. */
static inline void ranges_begin(struct ranges *ranges, int rank) {
    if (ranges->recorder)
        ranges_end(ranges);
    char path[sizeof ranges->path[0]];
    snprintf(path, sizeof path, "%s/%d.spool", ranges->folder, rank);
    strcpy(ranges->path[ranges->ranks++], path);
    const struct mp_recorder_config config = {.path = path, .rank = rank, .ranks = rank + 1};
    assert_works(mp_recorder_create(&config, &ranges->recorder, &error));
    assert_works(mp_recorder_thread(ranges->recorder, "nvtx", &ranges->thread, &error));
}

/* The id of a name, recorded when it is the spool's first or differs from the last few. */
static inline uint32_t ranges_name(struct ranges *ranges, const char *name, uint32_t kind) {
    for (uint32_t id = ranges->names > 64 ? ranges->names - 64 : 1; id <= ranges->names; id++)
        if (ranges->name[id] && !strcmp(ranges->name[id], name))
            return id;
    assert_true(++ranges->names < RANGES_NAMES);
    ranges->name[ranges->names] = strdup(name);
    put_name(ranges->thread, ranges->names, kind, name);
    return ranges->names;
}

static inline void ranges_add(struct ranges *ranges, const char *domain, const char *name,
                              int64_t start_ns, int64_t end_ns, uint32_t thread) {
    struct mp_range is = {
        .start_ns = RANGES_T0 + start_ns, .end_ns = RANGES_T0 + end_ns, .thread = thread};
    if (*domain)
        is.domain = ranges_name(ranges, domain, MP_NAME_DOMAIN);
    is.name = ranges_name(ranges, name, MP_NAME_STRING);
    put_range(ranges->thread, is);
}

static inline void ranges_add_value(struct ranges *ranges, const char *name, int64_t start_ns,
                                    int64_t end_ns, int64_t value) {
    const struct mp_range is = {.start_ns = RANGES_T0 + start_ns,
                                .end_ns = RANGES_T0 + end_ns,
                                .thread = 1,
                                .name = ranges_name(ranges, name, MP_NAME_STRING),
                                .value = (uint64_t)value,
                                .value_type = MP_VALUE_I64};
    put_range(ranges->thread, is);
}

static inline struct mp_suggestion *ranges_judge(struct ranges *ranges) {
    const char *path[RANGES_RANKS];
    struct mp_suggestion *suggestion = NULL;
    if (ranges->recorder)
        ranges_end(ranges);
    for (int i = 0; i < ranges->ranks; i++)
        path[i] = ranges->path[i];
    assert_works(mp_suggestion_create(path, ranges->ranks, &ranges->in_use, &suggestion, &error));
    return suggestion;
}

static inline void ranges_say(struct ranges *ranges, char said[], size_t size) {
    struct mp_suggestion *suggestion = ranges_judge(ranges);
    FILE *stream = fmemopen(said, size, "w");
    mp_suggestion_say(suggestion, stream);
    fclose(stream);
    mp_suggestion_destroy(suggestion);
}

/* Writes the file, reads it back and keeps its text. */
static inline void ranges_suggest(struct ranges *ranges) {
    struct mp_suggestion *suggestion = ranges_judge(ranges);
    assert_works(mp_suggestion_write(suggestion, ranges->file, "moeperf record --from x", &error));
    mp_suggestion_destroy(suggestion);
    mp_rules_destroy(&ranges->rules);
    assert_works(mp_rules_load(ranges->file, &ranges->rules, &error));
    FILE *file = fopen(ranges->file, "r");
    ranges->text[fread(ranges->text, 1, RANGES_TEXT - 1, file)] = '\0';
    fclose(file);
}

/* The proposed rule for a range without a domain; NULL: there is none. */
static inline const struct mp_rule *rule_of(const struct ranges *ranges, const char *name) {
    struct mp_rule_capture capture;
    return mp_rules_find(&ranges->rules, name, "", &capture);
}
