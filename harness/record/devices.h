/* Devices: the collectors of GPU work beside a recorded program's ranges. */
#pragma once

#include <stdio.h>

#include "results/store/store.h"

#define MP_DEVICE_ENDING ".device" /* of the collectors' spools */

/* Sets what makes CUDA and NCCL load the collectors that there are, with their spools in `folder`.
 * CUDA_INJECTION64_PATH and NCCL_PROFILER_PLUGIN stay as they are where the user has set them: each
 * has room for one library.  For the process that becomes the program. */
void mp_devices_offer(const char *folder);

/* Adds the collectors' spools in `folder` to a run, says on `stream` what each recorded or why it
 * was off, and removes them unless they are kept.  No spools are no error: the program used no GPU.
 * What is no spool of this build's is left out, which is said, and stays.
 * Errors: those of mp_store_add_device, MP_EIO. */
int mp_devices_keep(struct mp_store *store, int64_t run_id, const char *folder, bool keep_spools,
                    FILE *stream, struct mp_error *error);

/* Says on `stream` what a query of a run finds: rows of one text, a line each. */
void mp_record_say(struct mp_store *store, const char *query, int64_t run_id, FILE *stream);
