#include "reference/gate/gate.h"

#include <stdio.h>
#include <string.h>

int mp_gate_find(const char *name) {
    for (int i = 0; mp_gate_kinds[i]; i++)
        if (!strcmp(mp_gate_kinds[i]->name, name))
            return i;
    return -1;
}

int mp_gate_of_choices(int top_k) {
    for (int i = 0; mp_gate_kinds[i]; i++)
        if (mp_gate_kinds[i]->least <= top_k && top_k <= mp_gate_kinds[i]->most)
            return i;
    return 0;
}

int mp_gate_rule(const struct mp_gate_kind *kind, const struct mp_gate_sizes *sizes,
                 bool renormalise, const struct mp_gate_values *options, struct mp_gate_rule *rule,
                 struct mp_error *error) {
    *rule = (struct mp_gate_rule){
        .renormalise =
            kind->weights == MP_WEIGHTS_EITHER ? renormalise : kind->weights == MP_WEIGHTS_DIVIDED,
        .keeps_weights = kind->weights == MP_WEIGHTS_AS_THEY_ARE && kind->most > 1,
        .loss_counts = kind->loss_counts,
        .loss_divisor = kind->loss_counts == MP_COUNT_ALL ? sizes->top_k : 1,
    };
    return kind->complete ? kind->complete(sizes, options->bytes, rule, error) : MP_OK;
}

int mp_gate_check_groups(const struct mp_gate_sizes *sizes, const char *option, int groups,
                         int kept, struct mp_error *error) {
    if (sizes->experts % groups)
        return mp_fail(error, MP_EINVAL,
                       "%s: %d experts can't be divided evenly over %d; take a divisor", option,
                       sizes->experts, groups);
    if (kept > groups)
        return mp_fail(error, MP_EINVAL, "%s: %d of %d groups can't be kept", option, kept, groups);
    if (sizes->experts / groups * kept < sizes->top_k)
        return mp_fail(error, MP_EINVAL,
                       "%s: a token takes %d experts, and %d of %d groups have only %d", option,
                       sizes->top_k, kept, groups, sizes->experts / groups * kept);
    return MP_OK;
}

/* Whether words have to say how many experts a token takes. */
static bool takes_several(const struct mp_gate_kind *kind) {
    return kind->least < kind->most;
}

/* Adds " name=value" for options that are not at their default. */
static void add_options(const struct mp_gate_kind *kind, const struct mp_gate_values *options,
                        char *words, size_t size) {
    char value[MP_TEXT_SIZE];
    for (const struct mp_option *option = kind->options; option && option->name; option++) {
        size_t at = strlen(words);
        mp_options_format(option, options->bytes, value, sizeof value);
        if (strcmp(value, option->default_value) != 0)
            snprintf(words + at, size - at, " %s=%s", option->name, value);
    }
}

const char *mp_gate_words(const struct mp_gate_kind *kind, int top_k, bool renormalise,
                          const struct mp_gate_values *options, char buffer[MP_GATE_WORDS]) {
    int at = snprintf(buffer, MP_GATE_WORDS, "%s", kind->name);
    if (takes_several(kind))
        at += snprintf(buffer + at, (size_t)(MP_GATE_WORDS - at), " top-%d", top_k);
    if (kind->weights == MP_WEIGHTS_EITHER && !renormalise)
        snprintf(buffer + at, (size_t)(MP_GATE_WORDS - at), " not renormalised");
    add_options(kind, options, buffer, MP_GATE_WORDS);
    return buffer;
}

int mp_gate_words_top_k(const char *words) {
    char name[64];
    int top_k = 0;
    if (sscanf(words, "%63s top-%d", name, &top_k) < 1)
        return 0;
    int found = mp_gate_find(name);
    return found < 0 || takes_several(mp_gate_kinds[found]) ? top_k : mp_gate_kinds[found]->usual;
}
