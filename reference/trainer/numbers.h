/* Numbers of a run that have their names in a table. */
#pragma once

#include "profiler/record/record.h"
#include "reference/plan/named.h"

/* Records every member of `values` that the table names, as mp_record_number does. */
void mp_record_named(struct mp_record_thread *thread, int64_t iteration, int layer,
                     const struct mp_named_number table[], const void *values);
