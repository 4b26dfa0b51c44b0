/* Injected delays: see inject.h. */
#include "reference/trainer/inject.h"

#include <stdio.h>
#include <string.h>

#include "profiler/record/record.h"
#include "reference/plan/option.h"

#define FIELD(member) offsetof(struct mp_inject, member)

/* The phases of an iteration, in the order of enum mp_phase from data on. */
static const char phases[] = "data embed attention gate plan fetch dispatch expert combine reduce "
                             "allreduce optimizer move head wait";

static const struct mp_option table[] = {
    {"rank", MP_OPTION_INT, FIELD(rank), "", NULL, 0, 4095, NULL, "who is delayed"},
    {"phase", MP_OPTION_CHOICE, FIELD(phase), "", NULL, 0, 0, phases, "in what"},
    {"seconds", MP_OPTION_DOUBLE, FIELD(seconds), "s", NULL, 1e-9, 3600, NULL,
     "how long in every span of the phase"},
    {"every", MP_OPTION_INT, FIELD(every), "iterations", "1", 1, 1 << 30, NULL,
     "in which iterations: those that it divides"},
    {"layer", MP_OPTION_COUNT, FIELD(layer), "", "all", 0, 1023, NULL, "in which layer"},
    {0},
};

static int set_word(const char *word, size_t length, struct mp_inject *inject, bool given[3],
                    struct mp_error *error) {
    char name[64], value[64];
    const char *equals = memchr(word, '=', length);
    size_t before = equals ? (size_t)(equals - word) : 0;
    if (!equals || before >= sizeof name || length - before > sizeof value)
        return mp_fail(error, MP_EINVAL,
                       "inject: \"%.*s\" should be NAME=VALUE, as in \"rank=1 phase=expert "
                       "seconds=0.01\"",
                       (int)(length < 200 ? length : 200), word);
    snprintf(name, sizeof name, "%.*s", (int)before, word);
    snprintf(value, sizeof value, "%.*s", (int)(length - before - 1), equals + 1);
    for (int i = 0; i < 3; i++)
        given[i] = given[i] || !strcmp(name, table[i].name);
    return mp_options_set(table, inject, "inject", name, value, "inject", error);
}

int mp_inject_parse(const char *text, struct mp_inject *inject, struct mp_error *error) {
    static const char blanks[] = " \t\r\n";
    bool given[3] = {false};
    *inject = (struct mp_inject){0};
    const char *word = text + strspn(text, blanks);
    if (!*word)
        return MP_OK;
    int code = mp_options_set_defaults(table, inject, error);
    while (*word && !code) {
        size_t length = strcspn(word, blanks);
        code = set_word(word, length, inject, given, error);
        word += length;
        word += strspn(word, blanks);
    }
    for (int i = 0; i < 3 && !code; i++)
        if (!given[i])
            code = mp_fail(error, MP_EINVAL, "inject: \"%.200s\" does not say %s", text,
                           table[i].name);
    inject->phase += MP_PHASE_DATA;
    if (code)
        *inject = (struct mp_inject){0};
    return code;
}

bool mp_inject_delays_transfers(int phase) {
    return phase == MP_PHASE_FETCH || phase == MP_PHASE_DISPATCH || phase == MP_PHASE_COMBINE ||
           phase == MP_PHASE_REDUCE || phase == MP_PHASE_ALLREDUCE || phase == MP_PHASE_MOVE ||
           phase == MP_PHASE_WAIT;
}
