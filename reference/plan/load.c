#include "reference/plan/load.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "reference/plan/routes.h"

int mp_load_create(int ranks, int experts, struct mp_load *load, struct mp_error *error) {
    *load = (struct mp_load){0};
    if (ranks < 1 || experts < 1)
        return mp_fail(error, MP_EINVAL,
                       "a load needs at least one rank and one expert, not %d ranks and %d experts",
                       ranks, experts);
    MP_TRY(MP_NEW(load->count, (size_t)ranks * (size_t)experts, error));
    load->ranks = ranks;
    load->experts = experts;
    return MP_OK;
}

struct mp_load *mp_loads_take(struct mp_arena *arena, int64_t count, int ranks, int experts) {
    struct mp_load *load;
    MP_TAKE(arena, load, count);
    for (int64_t i = 0; load && i < count; i++) {
        load[i] = (struct mp_load){.ranks = ranks, .experts = experts};
        MP_TAKE(arena, load[i].count, (size_t)ranks * (size_t)experts);
    }
    return load;
}

int mp_load_give_first(struct mp_load *load, struct mp_error *error) {
    return MP_NEW(load->first, (size_t)load->ranks * (size_t)load->experts, error);
}

void mp_load_destroy(struct mp_load *load) {
    if (!load)
        return;
    free(load->count);
    free(load->first);
    free(load->distinct);
    free(load->next);
    mp_load_drop_routes(load);
    *load = (struct mp_load){0};
}

void mp_load_expert_totals(const struct mp_load *load, int64_t total[]) {
    memset(total, 0, (size_t)load->experts * sizeof *total);
    for (int source = 0; source < load->ranks; source++) {
        const uint32_t *row = load->count + (long)source * load->experts;
        for (int expert = 0; expert < load->experts; expert++)
            total[expert] += row[expert];
    }
}

int64_t mp_load_total(const struct mp_load *load) {
    long cells = (long)load->ranks * load->experts;
    int64_t total = 0;
    for (long cell = 0; cell < cells; cell++)
        total += load->count[cell];
    return total;
}

int64_t mp_load_largest(const struct mp_load *load) {
    long cells = (long)load->ranks * load->experts;
    uint32_t largest = 0;
    for (long cell = 0; cell < cells; cell++)
        largest = load->count[cell] > largest ? load->count[cell] : largest;
    return largest;
}

void mp_load_repeat(struct mp_load *load, int experts) {
    uint32_t *const table[] = {load->count, load->first};
    for (int i = 0; i < 2 && table[i]; i++)
        for (long source = 0; source < load->ranks; source++) {
            uint32_t *row = table[i] + source * load->experts;
            for (int expert = experts; expert < load->experts; expert++)
                row[expert] = row[expert - experts];
        }
}

void mp_load_copy(struct mp_load *to, const struct mp_load *from) {
    memcpy(to->count, from->count,
           (size_t)from->ranks * (size_t)from->experts * sizeof *from->count);
}

/* `a` comes before `b`: more load, or the same and a lower id. */
static bool hotter(const int64_t total[], int32_t a, int32_t b) {
    return total[a] != total[b] ? total[a] > total[b] : a < b;
}

/* Restores the heap below `root`; the coldest of a heap is on its top. */
static void sift_down(const int64_t total[], int32_t heap[], int root, int size) {
    int32_t value = heap[root];
    for (int child; (child = 2 * root + 1) < size; root = child) {
        if (child + 1 < size && hotter(total, heap[child], heap[child + 1]))
            child++;
        if (!hotter(total, value, heap[child]))
            break;
        heap[root] = heap[child];
    }
    heap[root] = value;
}

void mp_load_hottest(const int64_t total[], int experts, int wanted, int32_t order[]) {
    /* Heap sort, because qsort may allocate and planners run inside a step. */
    for (int expert = 0; expert < wanted; expert++)
        order[expert] = expert;
    for (int root = wanted / 2 - 1; root >= 0; root--)
        sift_down(total, order, root, wanted);
    for (int expert = wanted; wanted > 0 && expert < experts; expert++) {
        if (hotter(total, expert, order[0])) {
            order[0] = expert;
            sift_down(total, order, 0, wanted);
        }
    }
    for (int size = wanted - 1; size > 0; size--) {
        int32_t coldest = order[0];
        order[0] = order[size];
        order[size] = coldest;
        sift_down(total, order, 0, size);
    }
}

void mp_load_lacks(const int64_t load[], int ranks, int64_t routes, int32_t order[],
                   int64_t lack[]) {
    int remainder = (int)(routes % ranks);

    for (int rank = 0; rank < ranks; rank++)
        lack[rank] = routes / ranks - load[rank];
    mp_load_hottest(load, ranks, remainder, order);
    for (int index = 0; index < remainder; index++)
        lack[order[index]]++;
}
