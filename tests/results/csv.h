/* Fields of comma-separated values, as RFC 4180 reads them. */
#pragma once

#include "tests/support.h"

struct csv_field {
    char *text;
    bool quoted;    /* which tells "" from nothing */
    bool ends_line; /* a comma follows else */
};

/* The next field, written over what it was read from; *at goes behind it. */
static inline struct csv_field csv_next(char **at) {
    char *from = *at, *to = *at;
    struct csv_field field = {.text = *at, .quoted = *from == '"'};
    for (from += field.quoted;
         field.quoted ? *from != '"' || from[1] == '"' : !strchr(",\n", *from); from++) {
        from += field.quoted && *from == '"';
        *to++ = *from;
    }
    from += field.quoted;
    assert_true(*from == ',' || *from == '\n');
    field.ends_line = *from == '\n';
    *to = '\0';
    *at = from + 1;
    return field;
}
