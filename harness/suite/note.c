/* Notes: see note.h. */
#include "harness/suite/note.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "reference/base/whole_file.h"

#define FIELD(member) offsetof(struct mp_store_run, member)

struct field {
    const char *name;
    size_t offset;
    bool is_required;
};

static const struct field texts[] = {{"suite", FIELD(suite), true},
                                     {"job", FIELD(job), true},
                                     {"suite_run", FIELD(suite_run), true},
                                     {"system", FIELD(system), true},
                                     {"executor", FIELD(executor), true},
                                     {"workload", FIELD(workload), true},
                                     {"gate", FIELD(gate), false},
                                     {"model", FIELD(model), false},
                                     {"status", FIELD(status), false},
                                     {"reason", FIELD(reason), false},
                                     {"started_at", FIELD(started_at), true},
                                     {"suite_text", FIELD(suite_text), false},
                                     {"job_text", FIELD(job_text), false},
                                     {"command", FIELD(command), false}};
static const struct field numbers[] = {{"round", FIELD(round), true},
                                       {"ranks", FIELD(ranks), true},
                                       {"nodes", FIELD(nodes), true},
                                       {"ranks_per_node", FIELD(ranks_per_node), true}};
enum { TEXTS = sizeof texts / sizeof *texts, NUMBERS = sizeof numbers / sizeof *numbers };

/* ---- writing ---- */

static json_t *json_of_text(const char *text) {
    json_t *value = json_string(text);
    char *plain = value ? NULL : strdup(text);
    for (char *at = plain; at && *at; at++)
        if ((unsigned char)*at > 0x7f)
            *at = '?';
    if (plain)
        value = json_string(plain);
    free(plain);
    return value;
}

/* NULL without memory. */
static json_t *json_of_run(const struct mp_store_run *run) {
    json_t *json = json_object(), *facts = json_object();
    int failed = json_object_set_new(json, "facts", facts);
    for (int i = 0; i < TEXTS; i++) {
        const char *text = *(const char *const *)((const char *)run + texts[i].offset);
        if (text)
            failed |= json_object_set_new(json, texts[i].name, json_of_text(text));
    }
    for (int i = 0; i < NUMBERS; i++)
        failed |= json_object_set_new(
            json, numbers[i].name,
            json_integer(*(const int *)((const char *)run + numbers[i].offset)));
    failed |= json_object_set_new(json, "iterations_wanted", json_integer(run->iterations_wanted));
    failed |= json_object_set_new(json, "unattainable", json_boolean(run->unattainable));
    for (int i = 0; i < run->facts; i++)
        failed |= json_object_set_new(facts, run->fact[i].name, json_of_text(run->fact[i].value));
    if (!failed)
        return json;
    json_decref(json);
    return NULL;
}

int mp_note_write(const struct mp_store_run *run, const char *path, struct mp_error *error) {
    struct mp_whole_file file;
    json_t *json = json_of_run(run);
    if (!json)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for it", path);
    int code = mp_whole_file_open(&file, path, error);
    errno = 0;
    if (!code && json_dumpf(json, file.stream, JSON_INDENT(1)))
        code = mp_whole_file_fail(&file, error);
    json_decref(json);
    return mp_whole_file_close(&file, code, error);
}

/* ---- reading ---- */

static int fail_field(const char *path, const char *name, const char *right,
                      struct mp_error *error) {
    return mp_fail(error, MP_EFORMAT, "%s: %s: should be %s", path, name, right);
}

static int read_texts(const char *path, struct mp_note *note, struct mp_error *error) {
    for (int i = 0; i < TEXTS; i++) {
        const json_t *value = json_object_get(note->json, texts[i].name);
        if (!json_is_string(value) && (value || texts[i].is_required))
            return fail_field(path, texts[i].name, "a text", error);
        *(const char **)((char *)&note->run + texts[i].offset) = json_string_value(value);
    }
    return MP_OK;
}

static int read_numbers(const char *path, struct mp_note *note, struct mp_error *error) {
    for (int i = 0; i < NUMBERS; i++) {
        const json_t *value = json_object_get(note->json, numbers[i].name);
        int least = numbers[i].offset == FIELD(round) ? 0 : 1;
        json_int_t number = json_integer_value(value);
        if (!json_is_integer(value) || number < least || number > INT_MAX)
            return fail_field(path, numbers[i].name, "a whole number that a run can have", error);
        *(int *)((char *)&note->run + numbers[i].offset) = (int)number;
    }
    const json_t *wanted = json_object_get(note->json, "iterations_wanted");
    if (!json_is_integer(wanted) || json_integer_value(wanted) < 0)
        return fail_field(path, "iterations_wanted", "a whole number from 0 on", error);
    note->run.iterations_wanted = json_integer_value(wanted);
    const json_t *unattainable = json_object_get(note->json, "unattainable");
    if (!json_is_boolean(unattainable))
        return fail_field(path, "unattainable", "true or false", error);
    note->run.unattainable = json_is_true(unattainable);
    return MP_OK;
}

static int read_facts(const char *path, struct mp_note *note, struct mp_error *error) {
    json_t *facts = json_object_get(note->json, "facts"), *value;
    const char *name;
    if (!json_is_object(facts))
        return fail_field(path, "facts", "an object of texts", error);
    note->fact = calloc(json_object_size(facts) + 1, sizeof *note->fact);
    if (!note->fact)
        return mp_fail(error, MP_ENOMEM, "%s: no memory for its facts", path);
    json_object_foreach(facts, name, value) {
        if (!json_is_string(value))
            return fail_field(path, name, "a text", error);
        note->fact[note->run.facts++] = (struct mp_store_fact){name, json_string_value(value)};
    }
    note->run.fact = note->fact;
    return MP_OK;
}

int mp_note_read(const char *path, struct mp_note *note, struct mp_error *error) {
    json_error_t problem;
    memset(note, 0, sizeof *note);
    note->json = json_load_file(path, 0, &problem);
    if (!note->json)
        return mp_fail(error, MP_EFORMAT, "%s:%d: %s", path, problem.line, problem.text);
    int code = read_texts(path, note, error);
    if (!code)
        code = read_numbers(path, note, error);
    return code ? code : read_facts(path, note, error);
}

void mp_note_destroy(struct mp_note *note) {
    free(note->fact);
    json_decref(note->json);
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
