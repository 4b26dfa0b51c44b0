/* Markup: text of others inside HTML and XML. */
#ifndef MOEPERF_RESULTS_REPORT_MARKUP_H
#define MOEPERF_RESULTS_REPORT_MARKUP_H

#include <stdio.h>

/* Text with everything escaped that means something there, in elements and in quoted attributes;
 * line ends and tabs as spaces, '?' for other characters that can't be shown
 * (reference/base/characters.h) and for bytes that are no UTF-8. */
void markup_text(FILE *out, const char *text);

#endif
