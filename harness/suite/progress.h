/* Progress: one line that is redrawn in place on a terminal, quiet lines otherwise. */
#pragma once

#include "reference/base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct mp_progress_state {
    int job, jobs; /* this one, from 1, of all rounds */
    const char *name;
    int64_t iteration, iterations; /* 0 iterations: not known yet */
    double loss, ms;               /* of the last iteration; loss 0: there is none */
    double share;                  /* of the whole suite that is done, 0 .. 1 */
    double seconds_left;           /* of the whole suite; negative: not known yet */
};

struct mp_progress {
    FILE *stream; /* borrowed; NULL: show nothing */
    bool is_terminal, has_colour;
    bool is_drawn;   /* a status line stands on the terminal now */
    double drawn_at; /* s */
};

/* Colour and redrawing need a terminal; NO_COLOR in the environment turns colour off, TERM=dumb
 * both. */
void mp_progress_begin(struct mp_progress *progress, FILE *stream);

/* Redraws the status line, at most ten times a second.  Does nothing without a terminal. */
void mp_progress_draw(struct mp_progress *progress, const struct mp_progress_state *state);

/* Replaces the status line by a line that stays, clean (reference/base/characters.h). */
enum mp_progress_tone { MP_TONE_PLAIN, MP_TONE_GOOD, MP_TONE_BAD };
void mp_progress_say(struct mp_progress *progress, enum mp_progress_tone tone, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));

/* Removes the status line. */
void mp_progress_end(struct mp_progress *progress);

/* The status line for a terminal of `width` columns, at most width - 1 of them used (colour
 * sequences take none).  What does not fit is left out from the right; the bar comes first to go.
 * Returns `line`. */
const char *mp_progress_format(const struct mp_progress_state *state, int width, bool has_colour,
                               char *line, size_t size);

/* Estimate: how much of a suite is done and how long the rest will take.
 *
 * A job's time is known after its first round; before, it is taken as the mean of those known.  The
 * running job's rest is its pace since its first iteration, which leaves the start out. */

struct mp_estimate;

int mp_estimate_create(int jobs, int rounds, struct mp_estimate **estimate, struct mp_error *error);
void mp_estimate_destroy(struct mp_estimate *estimate); /* accepts NULL */
MP_END(estimate, struct mp_estimate *, mp_estimate_destroy(*it))

/* Jobs run in turn, in the same order in every round. */
void mp_estimate_begin_job(struct mp_estimate *estimate);
void mp_estimate_end_job(struct mp_estimate *estimate);

/* Progress of the running job: iterations done and to do. */
void mp_estimate_update(struct mp_estimate *estimate, int64_t iteration, int64_t iterations);

/* share 0 .. 1; seconds_left negative while nothing is known. */
void mp_estimate_read(const struct mp_estimate *estimate, double *share, double *seconds_left);
