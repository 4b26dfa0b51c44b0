/* Operations in words, as the tests of the schedule write them. */
#pragma once

#include "reference/schedule/schedule.h"

static inline const char *name_of(enum mp_operation_kind kind) {
    static const char *const names[MP_OPERATIONS] = {
        [MP_WORK_EMBED] = "embed",
        [MP_WORK_ATTENTION] = "attention",
        [MP_WORK_GATE] = "gate",
        [MP_WORK_PERMUTE] = "permute",
        [MP_WORK_SHARED] = "shared",
        [MP_WORK_EXPERTS] = "experts",
        [MP_WORK_COMBINE] = "combine",
        [MP_WORK_HEAD] = "head",
        [MP_WORK_UPDATE_EXPERTS] = "update-experts",
        [MP_WORK_UPDATE] = "update",
        [MP_TRAVEL_COUNTS] = "counts",
        [MP_TRAVEL_ROWS] = "rows",
        [MP_TRAVEL_RETURNS] = "returns",
        [MP_TRAVEL_LOSS] = "loss",
        [MP_TRAVEL_FETCH] = "fetch",
        [MP_TRAVEL_LATE_FETCH] = "late-fetch",
        [MP_TRAVEL_REFETCH] = "refetch",
        [MP_TRAVEL_AHEAD] = "ahead",
        [MP_TRAVEL_SUM_COPIES] = "sum-copies",
        [MP_TRAVEL_SHARE_SUMS] = "share-sums",
        [MP_TRAVEL_SEND_SLICES] = "send-slices",
        [MP_TRAVEL_SUM_DENSE] = "sum-dense",
        [MP_TRAVEL_MOVES] = "moves",
        [MP_TRAVEL_HOMES] = "homes",
    };
    return kind < MP_OPERATIONS ? names[kind] : "?";
}
