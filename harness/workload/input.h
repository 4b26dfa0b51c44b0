/* Files read from front to back, plain or packed with gzip or zstd (known by their magic numbers):
 * lines of text or bytes, in bounded memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reference/base/error.h"

enum { MP_INPUT_LINE = 16 << 20 }; /* bytes, the longest line */

struct mp_input;

/* Errors: MP_ENOTFOUND, MP_EIO, MP_ENOMEM. */
int mp_input_open(const char *path, struct mp_input **input, struct mp_error *error);
void mp_input_destroy(struct mp_input *input); /* accepts NULL */
MP_END(input, struct mp_input *, mp_input_destroy(*it))
/* Back to the beginning.  MP_EIO for what can't be read twice. */
int mp_input_rewind(struct mp_input *input, struct mp_error *error);

/* The next line without its end (LF or CRLF) and, in the first, without a byte-order mark; valid
 * until the next call and the caller's to change.  NULL at the end of the file.  Errors: MP_EIO,
 * MP_EFORMAT (a zero byte, a packed file that is cut or damaged), MP_ELIMIT (too long), MP_ENOMEM.
 */
int mp_input_line(struct mp_input *input, char **line, struct mp_error *error);
int64_t mp_input_line_number(const struct mp_input *input); /* of the last line given, from 1 */
bool mp_input_line_ended(const struct mp_input *input);     /* it was not the file's end that did */
const char *mp_input_path(const struct mp_input *input);

/* Up to `size` bytes; fewer only at the end of the file.  Errors as above. */
int mp_input_read(struct mp_input *input, void *to, size_t size, size_t *got,
                  struct mp_error *error);
