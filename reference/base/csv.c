#include "reference/base/csv.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Whether a spreadsheet would take the text for a formula, and carry it out. */
static bool is_formula(const char *text, size_t length) {
    return length > 0 && text[0] && strchr("=+-@\t\r", text[0]);
}

void mp_csv_text(FILE *file, const char *text, size_t length) {
    bool plain = length > 0 && text[0] != ' ' && text[length - 1] != ' ';
    for (size_t i = 0; plain && i < length; i++)
        plain = !strchr(",\"\r\n", text[i]); /* a zero byte is in it too */
    const char *mark = is_formula(text, length) ? "'" : "";
    if (plain) {
        fputs(mark, file);
        fwrite(text, 1, length, file);
        return;
    }
    fprintf(file, "\"%s", mark);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '"')
            fputc('"', file);
        fputc(text[i], file);
    }
    fputc('"', file);
}

void mp_csv_real(FILE *file, double value) {
    char digits[40];
    if (isnan(value))
        return;
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    fputs(digits, file);
    if (isfinite(value) && !strpbrk(digits, ".e"))
        fputs(".0", file); /* still a real number for whoever reads it */
}
