/* Layouts: homes of slots, slots of homes, and both over a restart. */
#include "reference/plan/layouts.h"

#include <stdlib.h>
#include <string.h>

/* [layers], or NULL: there is no room. */
static struct mp_slots *take_slots(const struct mp_layouts *layouts) {
    struct mp_slots *slots;
    MP_TAKE(layouts->memory, slots, layouts->layers);
    for (int layer = 0; slots && layer < layouts->layers; layer++)
        mp_slots_create(layouts->memory, layouts->ranks, layouts->experts, layouts->per_rank,
                        &slots[layer]);
    return slots;
}

void mp_layouts_create(struct mp_arena *memory, int layers, int ranks, int experts, int per_rank,
                       int ranks_per_node, struct mp_layouts *layouts) {
    *layouts = (struct mp_layouts){.memory = memory,
                                   .layers = layers,
                                   .ranks = ranks,
                                   .experts = experts,
                                   .per_rank = per_rank,
                                   .ranks_per_node = ranks_per_node};
    mp_slots_create(memory, ranks, experts, experts, &layouts->derived);
    MP_TAKE(memory, layouts->seen, experts);
    layouts->slots = take_slots(layouts);
}

int mp_layouts_check(const char *system, const struct mp_setting *setting, int per_rank,
                     double capacity_factor, struct mp_error *error) {
    int ranks = setting->topology.ranks;
    int64_t slots = (int64_t)per_rank * ranks;

    if (slots < setting->experts || slots > INT32_MAX)
        return mp_fail(error, MP_EINVAL,
                       "%s needs a slot for every expert: %d on each of %d ranks are too %s for %d "
                       "experts",
                       system, per_rank, ranks, slots < setting->experts ? "few" : "many",
                       setting->experts);
    if (mp_setting_shards(setting) > 1 && capacity_factor > 0)
        return mp_fail(error, MP_EINVAL,
                       "%s's capacities follow the slots of every expert, of which shards of one "
                       "may have different numbers: with expert-shards %d it takes "
                       "capacity-factor 0",
                       system, setting->shards);
    if (mp_slot_capacity(setting, per_rank, capacity_factor) == 0)
        return mp_fail(error, MP_EINVAL,
                       "%s with capacity-factor %g leaves a slot less than 1 route: %lld tokens on "
                       "each of %d ranks to %d experts each, over %lld slots",
                       system, capacity_factor, (long long)setting->tokens_per_rank, ranks,
                       setting->top_k, (long long)slots);
    return MP_OK;
}

static void set(struct mp_slots *slots, const int32_t expert[], int ranks_per_node) {
    memcpy(slots->expert, expert,
           (size_t)slots->ranks * (size_t)slots->per_rank * sizeof *slots->expert);
    mp_slots_index(slots, ranks_per_node);
}

void mp_layouts_keep_earlier(struct mp_layouts *layouts) {
    layouts->earlier = take_slots(layouts);
    for (int layer = 0; !layouts->memory->lacking && layer < layouts->layers; layer++)
        set(&layouts->earlier[layer], layouts->slots[layer].expert, layouts->ranks_per_node);
}

void mp_layouts_change(struct mp_layouts *layouts, int layer, const int32_t expert[]) {
    struct mp_slots *slots = &layouts->slots[layer];
    if (layouts->earlier)
        set(&layouts->earlier[layer], slots->expert, layouts->ranks_per_node);
    set(slots, expert, layouts->ranks_per_node);
}

void mp_layouts_owners(const void *self, int32_t owner[]) {
    const struct mp_layouts *layouts = self;
    for (int layer = 0; layer < layouts->layers; layer++)
        for (int expert = 0; expert < layouts->experts; expert++)
            *owner++ = layouts->slots[layer].rank[layouts->slots[layer].begin[expert]];
}

void mp_layouts_holders(const void *self, struct mp_placement home[]) {
    const struct mp_layouts *layouts = self;
    /* No expert is without a slot, which is all that could go wrong. */
    for (int layer = 0; layer < layouts->layers; layer++)
        (void)mp_slots_homes(&layouts->slots[layer], &home[layer], NULL);
}

int mp_layouts_limit(const struct mp_layouts *layouts) {
    int each = layouts->per_rank < layouts->experts ? layouts->per_rank : layouts->experts;
    return layouts->layers * each;
}

static bool holders_agree(const struct mp_slots *slots, const struct mp_placement *home,
                          int expert) {
    int ranks = 0;

    for (int32_t slot = slots->begin[expert]; slot < slots->begin[expert + 1]; slot++) {
        if (!mp_placement_holds(home, expert, slots->rank[slot]))
            return false;
        ranks += slot == slots->begin[expert] || slots->rank[slot] != slots->rank[slot - 1];
    }
    return ranks == mp_placement_copies(home, expert);
}

static bool agree(const struct mp_slots *slots, const struct mp_placement *home) {
    for (int expert = 0; expert < slots->experts; expert++)
        if (!holders_agree(slots, home, expert))
            return false;
    return true;
}

struct mp_slots *mp_layouts_for_home(struct mp_layouts *layouts, int layer,
                                     const struct mp_placement *home) {
    struct mp_slots *slots = &layouts->slots[layer], *derived = &layouts->derived;

    if (agree(slots, home))
        return slots;
    if (layouts->earlier && agree(&layouts->earlier[layer], home))
        return &layouts->earlier[layer];
    for (int rank = 0; rank < derived->ranks; rank++) {
        int32_t *slot = derived->expert + (long)rank * derived->per_rank;
        for (int expert = 0; expert < derived->experts; expert++)
            slot[expert] = mp_placement_holds(home, expert, rank) ? expert : -1;
    }
    mp_slots_index(derived, layouts->ranks_per_node);
    return derived;
}

struct head {
    char magic[8];
    int32_t layers, experts, ranks, per_rank;
};

/* Bytes of one layer's slots. */
static size_t layer_bytes(int ranks, int per_rank) {
    return (size_t)ranks * (size_t)per_rank * sizeof(int32_t);
}

size_t mp_layouts_save(const struct mp_layouts *layouts, const struct mp_recent *recent,
                       const char magic[8], void *buffer, size_t size) {
    struct head head = {.layers = layouts->layers,
                        .experts = layouts->experts,
                        .ranks = layouts->ranks,
                        .per_rank = layouts->per_rank};
    size_t bytes = layer_bytes(layouts->ranks, layouts->per_rank);
    size_t recent_bytes = recent ? mp_recent_save(recent, NULL, 0) : 0;
    size_t needed = sizeof head + (size_t)layouts->layers * bytes + recent_bytes;
    char *to = buffer;

    if (size < needed)
        return needed;
    memcpy(head.magic, magic, sizeof head.magic);
    memcpy(to, &head, sizeof head);
    to += sizeof head;
    for (int layer = 0; layer < layouts->layers; layer++, to += bytes)
        memcpy(to, layouts->slots[layer].expert, bytes);
    if (recent)
        mp_recent_save(recent, to, recent_bytes);
    return needed;
}

/* MP_EFORMAT unless the head fits the job, and its slots into `size` bytes. */
static int check_head(const struct mp_layouts *layouts, const char *system, const char magic[8],
                      const struct head *head, size_t size, struct mp_error *error) {
    if (memcmp(head->magic, magic, sizeof head->magic) != 0)
        return mp_fail(error, MP_EFORMAT, "what was saved is no state of %s of this version",
                       system);
    if (head->layers != layouts->layers || head->experts != layouts->experts)
        return mp_fail(error, MP_EFORMAT,
                       "the saved state of %s is of %d layers with %d experts, the job has %d with "
                       "%d",
                       system, head->layers, head->experts, layouts->layers, layouts->experts);
    if (head->ranks < 1 || head->per_rank < 1 ||
        (size - sizeof *head) / sizeof(int32_t) / (size_t)head->layers / (size_t)head->ranks <
            (size_t)head->per_rank)
        return mp_fail(error, MP_EFORMAT,
                       "a saved state of %s with %d slots on each of %d ranks has more than %zu "
                       "bytes",
                       system, head->per_rank, head->ranks, size);
    return MP_OK;
}

/* Whether a layer's saved slots name experts only, and each of them. */
static bool is_layout(struct mp_layouts *layouts, const char *from, size_t bytes) {
    int named = 0;

    memset(layouts->seen, 0, (size_t)layouts->experts * sizeof *layouts->seen);
    for (size_t at = 0; at < bytes; at += sizeof(int32_t)) {
        int32_t expert;
        memcpy(&expert, from + at, sizeof expert);
        if (expert < -1 || expert >= layouts->experts)
            return false;
        if (expert >= 0)
            named += layouts->seen[expert]++ == 0;
    }
    return named == layouts->experts;
}

int mp_layouts_read(struct mp_layouts *layouts, const char *system, const char magic[8],
                    const void *buffer, size_t size, struct mp_saved_layouts *saved,
                    struct mp_error *error) {
    struct head head;

    if (size < sizeof head)
        return mp_fail(error, MP_EFORMAT, "a saved state of %s has at least %zu bytes, not %zu",
                       system, sizeof head, size);
    memcpy(&head, buffer, sizeof head);
    MP_TRY(check_head(layouts, system, magic, &head, size, error));
    size_t bytes = layer_bytes(head.ranks, head.per_rank), before = (size_t)head.layers * bytes;
    *saved = (struct mp_saved_layouts){.ranks = head.ranks,
                                       .per_rank = head.per_rank,
                                       .expert = (const char *)buffer + sizeof head,
                                       .rest_bytes = size - sizeof head - before};
    saved->rest = saved->expert + before;
    for (int layer = 0; layer < head.layers; layer++)
        if (!is_layout(layouts, saved->expert + (size_t)layer * bytes, bytes))
            return mp_fail(error, MP_EFORMAT,
                           "the saved slots of %s in layer %d are not those of %d experts", system,
                           layer, head.experts);
    return MP_OK;
}

void mp_layouts_restore(struct mp_layouts *layouts, const struct mp_saved_layouts *saved) {
    size_t bytes = layer_bytes(saved->ranks, saved->per_rank);

    if (saved->ranks != layouts->ranks || saved->per_rank != layouts->per_rank)
        return;
    for (int layer = 0; layer < layouts->layers; layer++) {
        memcpy(layouts->slots[layer].expert, saved->expert + (size_t)layer * bytes, bytes);
        mp_slots_index(&layouts->slots[layer], layouts->ranks_per_node);
    }
}
