#include "reference/plan/system.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *mp_system_capability_name(unsigned bit) {
    switch (bit) {
    case MP_SYSTEM_REPLICATES:
        return "replicates";
    case MP_SYSTEM_DROPS:
        return "drops";
    case MP_SYSTEM_CHANGES_GATE:
        return "changes-gate";
    case MP_SYSTEM_MOVES_OWNERS:
        return "moves-owners";
    case MP_SYSTEM_PLANS_BEFORE_GATE:
        return "plans-before-gate";
    case MP_SYSTEM_UNEVEN_EXPERTS:
        return "uneven-experts";
    default:
        return NULL;
    }
}

static bool is_word(const char *name) {
    if (!islower((unsigned char)name[0]))
        return false;
    for (; *name; name++)
        if (!islower((unsigned char)*name) && !isdigit((unsigned char)*name) && *name != '-')
            return false;
    return true;
}

static bool is_empty(const char *text) {
    return !text || !text[0];
}

/* Data that everybody relies on: the broken rule, or NULL. */
static const char *descriptor_fault(const struct mp_system *system) {
    if (is_empty(system->title))
        return "the title is empty";
    if (is_empty(system->source))
        return "the source is empty";
    if (is_empty(system->models))
        return "it does not say what of its source is modelled";
    if (system->capabilities & ~(unsigned)MP_SYSTEM_CAPABILITIES)
        return "it claims a capability that does not exist";
    if (!system->options != !system->options_size)
        return "an option table and the size of its struct come together";
    return NULL;
}

/* Functions against capabilities: the broken rule, or NULL. */
static const char *function_fault(const struct mp_system *system) {
    unsigned can = system->capabilities;

    if (!system->create || !system->destroy)
        return "create and destroy are required";
    if (!system->initial_owners)
        return "initial_owners is required";
    if (!system->after_gate)
        return "after_gate is required";
    if ((can & MP_SYSTEM_PLANS_BEFORE_GATE) && !system->before_gate)
        return "plans-before-gate needs before_gate";
    if (system->before_gate && !(can & MP_SYSTEM_PLANS_BEFORE_GATE))
        return "before_gate needs plans-before-gate";
    if ((can & MP_SYSTEM_MOVES_OWNERS) && !system->after_step)
        return "moves-owners needs after_step";
    if ((can & MP_SYSTEM_REPLICATES) && !system->copies_limit)
        return "replicates needs copies_limit";
    if (!system->save != !system->load)
        return "save and load come together";
    return NULL;
}

int mp_systems_register(struct mp_systems *systems, const struct mp_system *system,
                        struct mp_error *error) {
    char owner[96];

    if (system->abi != MP_SYSTEM_ABI)
        return mp_fail(error, MP_EVERSION, "system %s was made for ABI %d, this is ABI %d",
                       is_empty(system->name) ? "without a name" : system->name, system->abi,
                       MP_SYSTEM_ABI);
    if (is_empty(system->name) || !is_word(system->name))
        return mp_fail(error, MP_EINVAL,
                       "system \"%s\": the name is not one word of lower-case letters, digits and "
                       "hyphens",
                       system->name ? system->name : "");
    for (int index = 0; index < systems->count; index++)
        if (strcmp(systems->item[index]->name, system->name) == 0)
            return mp_fail(error, MP_EINVAL, "system %s is there already", system->name);
    if (systems->count == MP_SYSTEMS_LIMIT)
        return mp_fail(error, MP_ELIMIT, "system %s is one more than the limit of %d systems",
                       system->name, MP_SYSTEMS_LIMIT);
    const char *fault = descriptor_fault(system);
    if (!fault)
        fault = function_fault(system);
    if (fault)
        return mp_fail(error, MP_EINVAL, "system %s: %s", system->name, fault);
    snprintf(owner, sizeof owner, "system %s", system->name);
    int code = mp_options_check(system->options, system->options_size, owner, error);
    if (!code)
        systems->item[systems->count++] = system;
    return code;
}

const struct mp_system *mp_systems_find(const struct mp_systems *systems, const char *name,
                                        struct mp_error *error) {
    const char *word[MP_SYSTEMS_LIMIT + 1];
    char known[512] = "";
    size_t length = 0;

    for (int index = 0; index < systems->count; index++) {
        if (strcmp(systems->item[index]->name, name) == 0)
            return systems->item[index];
        word[index] = systems->item[index]->name;
        if (length < sizeof known)
            length += (size_t)snprintf(known + length, sizeof known - length, "%s%s",
                                       index ? ", " : "", word[index]);
    }
    word[systems->count] = NULL;
    const char *nearest = mp_nearest_word(name, word);
    if (nearest)
        mp_fail(error, MP_ENOTFOUND, "unknown system \"%.80s\"; did you mean \"%s\"?", name,
                nearest);
    else
        mp_fail(error, MP_ENOTFOUND, "unknown system \"%.80s\"; known are %s", name,
                systems->count ? known : "none");
    return NULL;
}
