/* Memory for rows, as large as plans have asked for so far.
 *
 * How many rows a rank sends and works on is known once a layer's plan is: its experts may get none
 * or the routes of all ranks.  Room for the latter in every layer is 58 GB for 12 layers of 768 x
 * 1536 in bf16 on 32 ranks of 16,384 tokens, top 2, of which even loads use a thirty-second part.
 * So memory is as large as the most rows so far.  It grows between a layer's plan and its exchange,
 * by a quarter more than is needed: a run's memory settles within its first iterations, and from
 * few rows to R times as many it grows at most log(R) / log(1.25) times.  It never shrinks.
 *
 * What was in memory that grows is lost, and where it lies changes.  Who lets it grow makes sure
 * that nobody reads, writes or sends what is in it: struct mp_model has it in pieces that are free
 * at different times (mp_model_reserve). */
#pragma once

#include <stdbool.h>

#include "reference/device/device.h"

/* Rows there is room for are a multiple of this, so that arrays of rows may lie one after another
 * in such memory, each at an address that suits any operation. */
enum { MP_ROWS_TOGETHER = 64 };

struct mp_rows {
    size_t bytes;    /* of a row, in all arrays that lie here */
    bool host;       /* host_allocate's memory instead of the device's */
    void *memory;    /* NULL: none yet */
    int64_t room;    /* rows */
    int allocations; /* how often memory was made */
};

/* What `needed` rows take, or the present room where that is more. */
int64_t mp_rows_bytes(const struct mp_rows *rows, int64_t needed);
/* Room for `needed` rows, and where there is memory for that many for `wanted` (no fewer).  Waits
 * until `stream` has done what is queued before memory that it may use is given back.  False
 * without memory for `needed`; there is none at all then. */
bool mp_rows_reserve(struct mp_device *device, mp_stream stream, int64_t needed, int64_t wanted,
                     struct mp_rows *rows);
void mp_rows_release(struct mp_device *device, struct mp_rows *rows);
