/* Results of moeperf reproduce: tables for people, one JSON object for programs. */
#ifndef MOEPERF_HARNESS_CLI_REPRODUCE_H
#define MOEPERF_HARNESS_CLI_REPRODUCE_H

#include "harness/reproduce/infer.h"
#include "results/report/html.h"
#include "results/report/report.h"

/* All print on standard output and return a code. */
int cli_print_reproduction(const struct mp_reproduction *reproduction,
                           const struct mp_reproduce_settings *settings,
                           enum mp_report_format format, bool details, struct mp_error *error);
/* As a page (results/report/intervals.h). */
int cli_draw_reproduction(const struct mp_reproduction *reproduction,
                          const struct mp_page_output *output, struct mp_error *error);
/* What was inferred, for people; as one JSON object; as a page. */
int cli_print_inference(const struct mp_inference *inference, struct mp_error *error);
int cli_print_inference_json(const struct mp_inference *inference, struct mp_error *error);
int cli_draw_inference(const struct mp_inference *inference, const struct mp_page_output *output,
                       struct mp_error *error);

/* A number in its unit, "1.50" or "+3.0 %"; and what is published, with a mark of its certainty. */
void cli_format_figure(enum mp_paper_unit unit, double value, char text[32]);
void cli_format_published(const struct mp_paper_row *row, char text[80]);

/* The rows without predicting anything. */
int cli_print_published(const struct mp_reproduction *reproduction, struct mp_error *error);

#endif
