/* Ranges that may end on another thread: a fixed number of places, taken and given back without a
 * lock.  An id is its place's number below the number of its use, so that the id of a range that
 * has ended is not mistaken for the one that has its place now. */

#include "profiler/nvtx/threads.h"

enum { PLACE_BITS = 12 };
_Static_assert(MP_NVTX_STARTED == 1 << PLACE_BITS, "a place's number has its bits");

struct place {
    _Atomic uint64_t id; /* 0: nobody's, or being filled */
    uint64_t uses, next_id;
    _Atomic uint32_t below; /* number of the place below this one in the stack of free ones, + 1 */
    struct mp_nvtx_open open;
};

static struct place places[MP_NVTX_STARTED];
static _Atomic uint64_t top;       /* of the free ones: uses << 32 | place + 1 */
static _Atomic uint32_t untouched; /* places from here on have never been used */

static struct place *take_place(void) {
    uint64_t seen = atomic_load_explicit(&top, memory_order_acquire);
    while ((uint32_t)seen) {
        struct place *place = &places[(uint32_t)seen - 1];
        uint64_t below = atomic_load_explicit(&place->below, memory_order_relaxed);
        uint64_t next = ((seen >> 32) + 1) << 32 | below;
        if (atomic_compare_exchange_weak(&top, &seen, next))
            return place;
    }
    uint32_t fresh = atomic_load_explicit(&untouched, memory_order_relaxed);
    while (fresh < MP_NVTX_STARTED)
        if (atomic_compare_exchange_weak(&untouched, &fresh, fresh + 1))
            return &places[fresh];
    return NULL;
}

static void give_place_back(struct place *place) {
    uint64_t seen = atomic_load_explicit(&top, memory_order_relaxed), next;
    do {
        atomic_store_explicit(&place->below, (uint32_t)seen, memory_order_relaxed);
        next = ((seen >> 32) + 1) << 32 | (uint64_t)(place - places + 1);
    } while (!atomic_compare_exchange_weak(&top, &seen, next));
}

static struct place *place_of(uint64_t id) {
    return &places[id & (MP_NVTX_STARTED - 1)];
}

struct mp_nvtx_open *mp_nvtx_start(struct mp_nvtx_thread *thread, uint64_t *id) {
    struct place *place = take_place();
    *id = 0;
    if (!place) {
        count_one(thread, MP_NVTX_COUNT_LOST);
        return NULL;
    }
    *id = ++place->uses << PLACE_BITS | (uint64_t)(place - places);
    place->open.payload_bytes = 0;
    return &place->open;
}

void mp_nvtx_started(uint64_t id, uint64_t next_id) {
    struct place *place = place_of(id);
    place->next_id = next_id;
    atomic_store_explicit(&place->id, id, memory_order_release);
}

struct mp_nvtx_open *mp_nvtx_end(struct mp_nvtx_thread *thread, uint64_t id, uint64_t *next_id) {
    uint64_t expected = id;
    struct place *place = place_of(id);
    *next_id = 0;
    if (id == 0) /* mp_nvtx_start gave it when there was no place, and counted then */
        return NULL;
    if (!atomic_compare_exchange_strong(&place->id, &expected, 0)) {
        count_one(thread, MP_NVTX_COUNT_UNMATCHED);
        return NULL;
    }
    *next_id = place->next_id;
    return &place->open;
}

void mp_nvtx_ended(struct mp_nvtx_thread *thread, uint64_t id, struct mp_nvtx_open *open,
                   int64_t end_ns) {
    open->range.end_ns = end_ns;
    open->range.end_thread = thread->id;
    mp_nvtx_record(thread, open);
    give_place_back(place_of(id));
}

bool started_take(int number, struct mp_nvtx_open *open) {
    struct place *place = &places[number];
    uint64_t id = atomic_load_explicit(&place->id, memory_order_relaxed);
    if (!id || !atomic_compare_exchange_strong(&place->id, &id, 0))
        return false;
    *open = place->open;
    return true;
}
