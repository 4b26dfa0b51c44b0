#include "tests/bench/options.h"

#include <string.h>

void mp_bench_print_options(const struct mp_option table[]) {
    for (const struct mp_option *option = table; option->name; option++)
        printf("  --%-12s %s, %s unless given\n", option->name, option->help,
               *option->default_value ? option->default_value : "none");
}

static bool is_switch(const struct mp_option table[], const char *name) {
    const struct mp_option *option = mp_options_find(table, name);
    return option && option->type == MP_OPTION_BOOL;
}

int mp_bench_read_options(const struct mp_option table[], int argc, char **argv,
                          struct mp_bench_options *options, struct mp_error *error) {
    MP_TRY(mp_options_set_defaults(table, options, error));
    for (int i = 1; i < argc; i++) {
        const char *given = argv[i], *value = strchr(given, '=');
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(given, "="), given);
        if (strncmp(name, "--", 2) != 0)
            return mp_fail(error, MP_EINVAL, "%s: unknown argument \"%s\"", argv[0], given);
        if (value)
            value++;
        else
            value = is_switch(table, name + 2) ? "yes" : argv[++i]; /* NULL behind the last one */
        if (!value)
            return mp_fail(error, MP_EINVAL, "%s: %s needs a value", argv[0], given);
        MP_TRY(mp_options_set(table, options, argv[0], name + 2, value, NULL, error));
    }
    return MP_OK;
}
