/* Notes: see note.h. */
#include "harness/suite/note.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "reference/base/arena.h"
#include "reference/base/characters.h"
#include "reference/base/option.h"
#include "reference/base/whole_file.h"

#define FIELD(member) offsetof(struct mp_note, member)
#define TEXT(name, member, or_else)                                                                \
    {                                                                                              \
        name, MP_OPTION_STRING, FIELD(run.member), "bytes", or_else, 0, MP_YAML_SIZE_LIMIT, NULL,  \
            "of the run"                                                                           \
    }
#define NUMBER(name, member, least)                                                                \
    { name, MP_OPTION_INT, FIELD(run.member), "", NULL, least, INT_MAX, NULL, "of the run" }

static const struct mp_option fact_rows[] = {
    {"", MP_OPTION_KEY, .offset = offsetof(struct mp_store_fact, name)},
    {"", MP_OPTION_STRING, offsetof(struct mp_store_fact, value), "bytes", NULL, 0,
     MP_YAML_SIZE_LIMIT, NULL, ""},
    {0},
};
static const struct mp_option_form fact = {"a text", fact_rows, sizeof(struct mp_store_fact), NULL};
static const struct mp_option note_rows[] = {
    TEXT("suite", suite, NULL),
    TEXT("job", job, NULL),
    TEXT("suite_run", suite_run, NULL),
    TEXT("system", system, NULL),
    TEXT("executor", executor, NULL),
    TEXT("workload", workload, NULL),
    TEXT("gate", gate, ""),
    TEXT("model", model, ""),
    TEXT("setting_key", setting_key, ""),
    TEXT("status", status, ""),
    TEXT("reason", reason, ""),
    TEXT("started_at", started_at, NULL),
    TEXT("suite_text", suite_text, ""),
    TEXT("job_text", job_text, ""),
    TEXT("command", command, ""),
    NUMBER("round", round, 0),
    NUMBER("ranks", ranks, 1),
    NUMBER("nodes", nodes, 1),
    NUMBER("ranks_per_node", ranks_per_node, 1),
    {"iterations_wanted", MP_OPTION_INT64, FIELD(run.iterations_wanted), "", NULL, 0, 9e18, NULL,
     "of the run"},
    {"unattainable", MP_OPTION_BOOL, FIELD(run.unattainable), "", NULL, 0, 0, NULL,
     "of its system"},
    {"facts", MP_OPTION_NAMED, FIELD(fact), "", NULL, 0, MP_NOTE_FACTS, &fact, "of the run"},
    {0},
};

/* ---- writing ---- */

/* The text, or where it is no UTF-8 a copy of its other bytes; NULL stays so. */
static const char *readable(struct mp_arena *arena, const char *text) {
    uint32_t character;
    int length = 1;
    for (const char *at = text; at && *at && length; at += length)
        length = mp_character_decode(at, &character);
    char *plain = length ? NULL : mp_arena_text(arena, text);
    for (char *at = plain; at && *at; at++)
        if ((unsigned char)*at > 0x7f)
            *at = '?';
    return plain ? plain : length ? text : "?";
}

static int write_facts(const struct mp_store_run *run, struct mp_arena *arena, FILE *stream,
                       struct mp_error *error) {
    int code = MP_OK;
    fputs(run->facts ? "facts:\n" : "facts: {}\n", stream);
    for (int i = 0; i < run->facts && !code; i++) {
        fputs("  ", stream);
        code = mp_yaml_write_text(stream, readable(arena, run->fact[i].name), error);
        fputs(": ", stream);
        if (!code)
            code = mp_yaml_write_text(stream, readable(arena, run->fact[i].value), error);
        fputc('\n', stream);
    }
    return code;
}

int mp_note_write(const struct mp_store_run *run, const char *path, struct mp_error *error) {
    struct mp_note note = {.run = *run};
    const struct mp_option_group group[] = {{"", note_rows, &note, "a note"}, {0}};
    struct mp_whole_file file;
    struct mp_arena arena = {0};
    struct mp_error own = {0};
    for (const struct mp_option *row = note_rows; row->name; row++) {
        const char **text = (const char **)((char *)&note + row->offset);
        if (row->type == MP_OPTION_STRING)
            *text = readable(&arena, *text);
    }
    int code = mp_whole_file_open(&file, path, error);
    errno = 0;
    if (!code &&
        (mp_groups_write(group, file.stream, &own) || write_facts(run, &arena, file.stream, &own)))
        code = mp_whole_file_fail(&file, error);
    code = mp_whole_file_close(&file, code, error);
    mp_arena_release(&arena);
    return code;
}

/* ---- reading ---- */

int mp_note_read(const char *path, struct mp_note *note, struct mp_error *error) {
    const struct mp_reading reading = {path, error};
    memset(note, 0, sizeof *note);
    int code = mp_yaml_load(path, &note->document, error);
    if (!code)
        code = mp_options_read(&reading, note_rows, "a note", note->document, note);
    note->run.fact = note->fact;
    note->run.facts = note->facts;
    return code;
}

void mp_note_destroy(struct mp_note *note) {
    mp_yaml_destroy(note->document);
    memset(note, 0, sizeof *note);
}

/* ---- in use ---- */

int mp_note_hold(const char *folder) {
    int held = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (held < 0)
        return -1;
    /* Programs inherit it: a launcher outlives a moeperf that is killed, until its ranks end. */
    if (!flock(held, LOCK_EX | LOCK_NB) && !fcntl(held, F_SETFD, 0))
        return held;
    close(held);
    return -1;
}

bool mp_note_is_held(const char *folder) {
    int tried = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tried < 0)
        return false;
    bool is_held = flock(tried, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    close(tried);
    return is_held;
}
