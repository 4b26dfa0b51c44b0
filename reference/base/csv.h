/* Fields of comma-separated values (RFC 4180), such that what is read back is the same. */
#pragma once

#include <stddef.h>
#include <stdio.h>

/* `length` bytes, in quotes where they need it; where a spreadsheet would take them for a formula
 * and carry it out, an apostrophe in front. */
void mp_csv_text(FILE *file, const char *text, size_t length);

/* As few digits as read back as the same number, and a point in it; nothing for NAN. */
void mp_csv_real(FILE *file, double value);
