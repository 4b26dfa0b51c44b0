#include "reference/trainer/inject.h"

#include <string.h>

#include "profiler/record/record.h"
#include "reference/base/option.h"

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

static int set_option(void *inject, const char *name, const char *value, struct mp_error *error) {
    return mp_options_set(table, inject, "inject", name, value, "inject", error);
}

int mp_inject_parse(const char *text, struct mp_inject *inject, struct mp_error *error) {
    struct mp_inject said = {0};
    *inject = said;
    if (!text[strspn(text, " \t\r\n")])
        return MP_OK;
    MP_TRY(mp_options_set_defaults(table, &said, error));
    said.rank = said.phase = -1;
    MP_TRY(mp_options_read_line(text, "inject", set_option, &said, error));
    const char *missing = said.rank < 0         ? "rank"
                          : said.phase < 0      ? "phase"
                          : !(said.seconds > 0) ? "seconds"
                                                : NULL;
    if (missing)
        return mp_fail(error, MP_EINVAL, "inject: \"%.200s\" does not say %s", text, missing);
    *inject = said;
    inject->phase += MP_PHASE_DATA;
    return MP_OK;
}

bool mp_inject_delays_transfers(int phase) {
    return phase == MP_PHASE_FETCH || phase == MP_PHASE_DISPATCH || phase == MP_PHASE_COMBINE ||
           phase == MP_PHASE_REDUCE || phase == MP_PHASE_ALLREDUCE || phase == MP_PHASE_MOVE ||
           phase == MP_PHASE_WAIT;
}
