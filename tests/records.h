/* Records that collectors leave, as tests make them. */
#pragma once

#include "profiler/record/spool.h"

static inline void put_range(struct mp_record_thread *thread, struct mp_range is) {
    mp_record_add(thread, &(struct mp_spool_record){.type = MP_SPOOL_RANGE, .as.range.is = is});
}

static inline void put_name(struct mp_record_thread *thread, uint32_t id, uint32_t kind,
                            const char *text) {
    mp_record_add(thread, &(struct mp_spool_record){.type = MP_SPOOL_NAME,
                                                    .as.name = {id, kind, 0, 0, text}});
}

static inline void put_activity(struct mp_record_thread *thread, struct mp_activity activity) {
    mp_record_add(thread,
                  &(struct mp_spool_record){.type = MP_SPOOL_ACTIVITY, .as.activity = activity});
}

static inline void put_collective(struct mp_record_thread *thread, struct mp_collective is) {
    mp_record_add(thread,
                  &(struct mp_spool_record){.type = MP_SPOOL_COLLECTIVE, .as.collective = is});
}

static inline void put_timer(struct mp_record_thread *thread, struct mp_timer timer) {
    mp_record_add(thread, &(struct mp_spool_record){.type = MP_SPOOL_TIMER, .as.timer = timer});
}
