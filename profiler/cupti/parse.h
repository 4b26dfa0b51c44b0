/* From CUPTI's records to ours.  CUPTI's records lie packed in a buffer; cuptiActivityGetNextRecord
 * alone knows where the next one starts, also when it is longer than the struct compiled against.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "profiler/device/companion.h"

struct cupti_totals {
    int64_t records;     /* recorded */
    int64_t untimed;     /* of them kernels, copies and sets whose times CUPTI does not know */
    int64_t dropped;     /* by CUPTI, for want of room */
    int64_t left_bytes;  /* from a record of unknown kind, or one that is cut off, to the end */
    int64_t ignored;     /* of kinds that nobody asked for */
    int64_t overhead_ns; /* that CUPTI says it took */
};

/* Records everything in `bytes`, of which `valid` are filled, and adds to the totals.  Names are
 * CUPTI's and are copied here.  One thread at a time. */
void cupti_parse(struct mp_companion *companion, uint8_t *bytes, size_t valid,
                 struct cupti_totals *totals);

/* Records the totals as numbers "cupti.…". */
void cupti_record_totals(const struct mp_companion *companion, const struct cupti_totals *totals);
