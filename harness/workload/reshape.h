/* Reshaping: a trace for another number of ranks, experts, layers or tokens.
 *
 * Nothing is reshaped unless asked, and the trace's notes say what was done.  Totals are kept
 * unless tokens are asked for.  The rules, applied in this order:
 *
 *   ranks, fewer     neighbouring sources are added up; R' must divide R
 *   ranks, more      every source is split into q = R'/R sources: each gets n / q of an expert's n
 *                    routes, and the n mod q others go round the q sources, from one expert to the
 *                    next, so that their sums differ by one route at most and not at all if q
 *                    divides the source's; R must divide R'.  A trace of one source (totals only)
 *                    splits into any number.
 *   experts, fewer   neighbouring experts are added up; E' must divide E.  A token may then have
 *                    two routes to one expert: `tokens` cuts that, `top_k` refuses it.
 *   experts, more    every expert is split into E'/E, in shares that halve and halve again: of two
 *                    halves the first gets `tilt` (0.5: equal shares); E must divide E'.  An odd
 *                    number splits into (n + 1) / 2 and n / 2, and the halves count by their size.
 *                    Rounding is carried from source to source: an expert's total is within one
 *                    route of its share of the expert that it was split from.
 *   layers           layer l is layer l * L / L' (integer division) of the source: of more than
 *                    are wanted, evenly spread ones; of fewer, each several times
 *   micro-batches    1: those of an iteration are added up
 *   tokens           every source's counts are scaled to tokens * top_k routes by largest
 *                    remainder, ties to the lower expert.  An expert that would get more than
 *                    `tokens` gets just these, and the others share the rest by the same rule, in
 *                    proportion to their counts (all alike if they have none): an expert has at
 *                    most one route of a token.
 *
 * Folding undoes splitting, of ranks and of experts.
 *
 * Experts of tokens are kept where ranks are folded or layers left out; whatever else is done, they
 * are not, and the notes say so. */
#pragma once

#include "harness/workload/trace.h"

/* No number is negative; 0: as it is. */
struct mp_reshape {
    int ranks, experts, layers;
    int micro_batches; /* 1, or as many as there are */
    int64_t tokens;    /* of a source and micro-batch; tokens * top_k at most 2^31 - 1 */
    int top_k;   /* needed with tokens if the trace does not say; without tokens, lets blocks fail
                    (MP_EFORMAT) where an expert has more routes of a source than that has tokens */
    double tilt; /* 0.5 .. 1; 0 means 0.5 */
};

/* Takes over `source`, also when it fails; memory is that of a block, or of an iteration where
 * micro-batches are added up.  The result is ragged if the source is, or if ranks are split, which
 * can leave a route of difference.
 *
 * MP_EINVAL with both numbers and the nearest that can be made, or what else is impossible;
 * MP_ENOMEM.  Later, from mp_trace_next: the source's errors, MP_EFORMAT (tokens for a source
 * without routes, see also top_k), MP_ELIMIT (a sum above 2^32 - 1). */
int mp_trace_reshape(struct mp_trace_stream *source, const struct mp_reshape *wanted,
                     struct mp_trace_stream **stream, struct mp_error *error);
