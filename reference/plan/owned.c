#include "reference/plan/owned.h"

#include <string.h>

void mp_owned_create(struct mp_arena *memory, int ranks, int experts, struct mp_owned *owned) {
    *owned = (struct mp_owned){.ranks = ranks, .experts = experts};
    MP_TAKE(memory, owned->begin, ranks + 1);
    MP_TAKE(memory, owned->expert, experts);
    MP_TAKE(memory, owned->load, ranks);
}

int64_t mp_owned_list(struct mp_owned *owned, const int32_t owner[], const int64_t routes[],
                      const int32_t order[]) {
    int32_t *begin = owned->begin;
    int64_t all = 0;

    memset(begin, 0, ((size_t)owned->ranks + 1) * sizeof *begin);
    memset(owned->load, 0, (size_t)owned->ranks * sizeof *owned->load);
    for (int expert = 0; expert < owned->experts; expert++) {
        begin[owner[expert]]++;
        owned->load[owner[expert]] += routes[expert];
        all += routes[expert];
    }
    for (int rank = 0; rank < owned->ranks; rank++)
        begin[rank + 1] += begin[rank];
    /* Each begin is an end now, and moves back to where it belongs. */
    for (int index = owned->experts - 1; index >= 0; index--) {
        int32_t expert = order ? order[index] : index;
        owned->expert[--begin[owner[expert]]] = expert;
    }
    return all;
}

int32_t mp_owned_hottest(const struct mp_owned *owned, int rank, const int64_t routes[]) {
    int32_t found = -1;

    for (int32_t at = owned->begin[rank]; at < owned->begin[rank + 1]; at++)
        if (found < 0 || routes[owned->expert[at]] > routes[found])
            found = owned->expert[at];
    return found;
}
