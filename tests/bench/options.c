#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

/* The option that `argument` names, and the text after its '=', or NULL. */
static const struct mp_bench_option *find_option(const struct mp_bench_option options[],
                                                 const char *argument, const char **value) {
    if (strncmp(argument, "--", 2) != 0)
        return NULL;
    size_t length = strcspn(argument + 2, "=");
    *value = argument[2 + length] ? argument + 2 + length + 1 : NULL;
    for (; options->name; options++) {
        if (strlen(options->name) == length && memcmp(options->name, argument + 2, length) == 0)
            return options;
    }
    return NULL;
}

int mp_bench_options(int argc, char **argv, const struct mp_bench_option options[],
                     struct mp_error *error) {
    for (int i = 1; i < argc; i++) {
        const char *text = NULL;
        const struct mp_bench_option *option = find_option(options, argv[i], &text);
        if (!option)
            return mp_fail(error, MP_EINVAL, "%s: unknown argument \"%s\"", argv[0], argv[i]);
        if (!text && i + 1 < argc)
            text = argv[++i];
        if (!text)
            return mp_fail(error, MP_EINVAL, "%s: --%s needs a value", argv[0], option->name);

        char *end;
        errno = 0;
        long value = strtol(text, &end, 10);
        if (end == text || *end || errno || value < option->least || value > option->most)
            return mp_fail(error, MP_EINVAL, "%s: --%s %s is not a whole number in %ld .. %ld",
                           argv[0], option->name, text, option->least, option->most);
        *option->value = value;
    }
    return MP_OK;
}

int mp_bench_take_text(int *argc, char **argv, const char *name, const char **value,
                       struct mp_error *error) {
    for (int i = 1; i < *argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0 || strcmp(argv[i] + 2, name) != 0)
            continue;
        if (i + 1 == *argc)
            return mp_fail(error, MP_EINVAL, "%s: --%s needs a value", argv[0], name);
        *value = argv[i + 1];
        *argc -= 2;
        memmove(argv + i, argv + i + 2, (size_t)(*argc - i) * sizeof *argv);
        i--;
    }
    return MP_OK;
}

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double mp_bench_median(double values[], int count) {
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    int upper = count / 2;
    return count % 2 ? values[upper] : (values[upper - 1] + values[upper]) / 2;
}
