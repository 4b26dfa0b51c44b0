#include "results/paper/works.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

static const char names_field[] = "  names = {";

/* Where the entry behind this one begins; NULL: it is the last. */
static const char *next(const char *entry) {
    const char *at = strstr(entry, "\n@");
    return at ? at + 1 : NULL;
}

static bool has_word(const char *text, const char *word, size_t length) {
    for (const char *at = text; (at = memmem(at, strlen(at), word, length)); at++)
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[length]))
            return true;
    return false;
}

/* Names are separated by "; " and end with '}'. */
static bool is_named(const char *entry, const char *source) {
    const char *name = strstr(entry, names_field) + strlen(names_field);
    for (;;) {
        const size_t length = strcspn(name, ";}");
        if (has_word(source, name, length))
            return true;
        if (name[length] == '}')
            return false;
        name += length + strspn(name + length, "; ");
    }
}

uint64_t mp_works_named(const char *source) {
    uint64_t works = 0;
    int number = 0;
    for (const char *entry = mp_works_bibliography; entry; entry = next(entry), number++)
        if (is_named(entry, source))
            works |= UINT64_C(1) << number;
    return works;
}

void mp_works_print_keys(uint64_t works, FILE *out) {
    const char *before = "";
    for (const char *entry = mp_works_bibliography; entry; entry = next(entry), works >>= 1) {
        const char *key = strchr(entry, '{') + 1;
        if (!(works & 1))
            continue;
        fprintf(out, "%s%.*s", before, (int)strcspn(key, ","), key);
        before = ", ";
    }
}

void mp_works_print(uint64_t works, FILE *out) {
    for (const char *entry = mp_works_bibliography; entry; entry = next(entry), works >>= 1) {
        if (!(works & 1))
            continue;
        const char *names = strstr(entry, names_field), *rest = strchr(names, '\n') + 1;
        fprintf(out, "\n%.*s%.*s}\n", (int)(names - entry), entry,
                (int)(strstr(rest, "\n}") + 1 - rest), rest);
    }
}
