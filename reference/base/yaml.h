/* YAML documents with the place of every value, through libyaml.
 *
 * Values stay text; option tables (reference/base/option.h) give them types, ranges and defaults,
 * and the line kept here goes into their messages. */
#pragma once

#include <stddef.h>
#include <stdio.h>

#include "reference/base/arena.h"
#include "reference/base/error.h"

enum { MP_YAML_SIZE_LIMIT = 16 << 20 }; /* bytes of a file */

enum mp_yaml_kind { MP_YAML_SCALAR, MP_YAML_SEQUENCE, MP_YAML_MAPPING };

struct mp_yaml {
    enum mp_yaml_kind kind;
    int line, column;      /* from 1 */
    char *text;            /* scalar */
    int count;             /* of items or entries */
    char **key;            /* [count], mapping only */
    int *key_line;         /* [count], mapping only */
    struct mp_yaml **item; /* [count], sequence or mapping values */
    struct mp_arena arena; /* of a document: all that is in it */
};

/* Reads the first document of a file.  Errors: MP_ENOTFOUND, MP_EIO, MP_EFORMAT with
 * "path:line:column: ..." for syntax errors, duplicate keys, aliases that refer to themselves,
 * nesting deeper than 32 levels, files above 16 MiB, more than 1048576 values (an alias counts as
 * the values it copies) and empty files. */
int mp_yaml_load(const char *path, struct mp_yaml **document, struct mp_error *error);
/* The same from memory; `name` stands for the path in messages. */
int mp_yaml_parse(const char *name, const char *text, size_t size, struct mp_yaml **document,
                  struct mp_error *error);
void mp_yaml_destroy(struct mp_yaml *document); /* accepts NULL */
MP_END(yaml, struct mp_yaml *, mp_yaml_destroy(*it))

/* The whole text of a file of at most 16 MiB, for callers that keep it as well; free it.  It ends
 * with a zero byte that is not counted in *size.  Errors: MP_ENOTFOUND, MP_EIO, MP_EFORMAT. */
int mp_yaml_read_file(const char *path, char **text, size_t *size, struct mp_error *error);

/* The value of a mapping's key, or NULL. */
const struct mp_yaml *mp_yaml_get(const struct mp_yaml *mapping, const char *key);

/* Writes `text` as a double-quoted value that the reader gives back byte for byte.  Errors:
 * MP_EINVAL (not UTF-8: YAML has no way to say other bytes), MP_EIO. */
int mp_yaml_write_text(FILE *stream, const char *text, struct mp_error *error);
