/* What recording cost a run: how many spans an iteration of a rank records, times what one costs as
 * the run itself measured it (numbers "record-span-ns" of the trainer, "nvtx-pair-ns" of the
 * collector of NVTX ranges). */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "results/store/store.h"

enum { RECORDING_COST_TEXT = 160 };

/* NAN: not known. */
struct recording_cost {
    bool predicted;       /* nothing ran: all else is NAN */
    bool ranges;          /* what was recorded are an annotated program's ranges */
    double spans;         /* of all ranks; or ranges */
    double per_iteration; /* of a rank */
    double cost_ns;       /* of one, on the rank where it is largest */
    double share;         /* of an iteration's time, mean over the iterations */
};

/* Errors: MP_EIO, MP_ENOMEM. */
int recording_cost_read(struct mp_store *store, int64_t run_id, struct recording_cost *cost,
                        struct mp_error *error);

/* "312 spans per iteration at 55 ns: 0.030 % of an iteration", or what is not known of it; "" for a
 * predicted run and for one that recorded nothing.  Returns `text`, which has RECORDING_COST_TEXT
 * bytes. */
const char *recording_cost_words(const struct recording_cost *cost, char *text);

/* {"spans", "spans_per_iteration", "span_ns", "share"}; null for a predicted run. */
json_t *recording_cost_json(const struct recording_cost *cost);
