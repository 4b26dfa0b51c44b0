#include "reference/model/experts.h"

#include <stdlib.h>
#include <string.h>

/* Zeroed, so that what lies behind an expert's last element in its last slice stays zero. */
static void *zeroed(struct mp_experts *experts, size_t count, size_t size) {
    void *memory = mp_device_take(&experts->blocks, (int64_t)count, size);
    if (memory)
        experts->device->operations->zero(experts->device, NULL, memory, count * size);
    return memory;
}

/* The same of what is offloaded with the state. */
static void *zeroed_state(struct mp_experts *experts, size_t count) {
    if (!experts->layout.host)
        return zeroed(experts, count, sizeof(float));
    void *memory = mp_device_take_host(&experts->blocks, (int64_t)count, sizeof(float));
    if (memory)
        memset(memory, 0, count * sizeof(float));
    return memory;
}

void mp_experts_write(const struct mp_experts *experts, float *to, const float *from,
                      size_t count) {
    if (experts->layout.host)
        memcpy(to, from, count * sizeof *to);
    else
        experts->device->operations->copy_from_host(experts->device, NULL, to, from,
                                                    count * sizeof *to);
}

/* Whether this rank keeps anything of an expert; and if so, which slice. */
static bool keeps(const struct mp_experts *experts, const struct mp_placement *home, int expert,
                  int *piece) {
    const struct mp_experts_layout *layout = &experts->layout;
    *piece = 0;
    if (!experts->slice)
        return mp_placement_holds(home, expert, layout->rank);
    if (!mp_optimizer_of_replicas(layout->optimizer)) {
        *piece = layout->rank;
        return true;
    }
    for (int rank = mp_placement_next(home, expert, 0); rank >= 0 && rank < layout->rank;
         rank = mp_placement_next(home, expert, rank + 1))
        ++*piece;
    return mp_placement_holds(home, expert, layout->rank);
}

/* An expert's first parameters, or the slice of them, into a slot. */
static int place(struct mp_experts *experts, int layer, int expert, int piece, const float *host,
                 struct mp_error *error) {
    size_t begin = (size_t)piece * experts->slice, count = experts->kept;
    int slot = mp_experts_take(experts, layer, expert);
    if (slot < 0)
        return mp_fail(error, MP_ELIMIT, "rank %d keeps more than %d experts", experts->layout.rank,
                       experts->slots);
    experts->piece[layer * experts->experts + expert] = piece;
    if (begin >= experts->chunk)
        return MP_OK;
    count = count < experts->chunk - begin ? count : experts->chunk - begin;
    mp_experts_write(experts, experts->parameter + (size_t)slot * experts->kept, host + begin,
                     count);
    return MP_OK;
}

static int fill(struct mp_experts *experts, const struct mp_model_shape *shape, uint64_t seed,
                const struct mp_placement home[], struct mp_error *error) {
    MP_AUTO(memory) float *host = NULL;
    int piece = 0;
    MP_TRY(MP_NEW(host, experts->chunk, error));
    for (int i = 0; i < experts->layers * experts->experts; i++) {
        int layer = i / experts->experts, expert = i % experts->experts;
        if (!keeps(experts, &home[layer], expert, &piece))
            continue;
        mp_expert_initialise(shape, seed, layer, expert, host);
        MP_TRY(place(experts, layer, expert, piece, host, error));
    }
    return MP_OK;
}

static bool allocate_tables(struct mp_experts *experts) {
    size_t all = (size_t)experts->layers * (size_t)experts->experts;
    MP_TAKE_EACH(&experts->memory, all, experts->slot, experts->moments, experts->piece,
                 experts->updated);
    MP_TAKE_EACH(&experts->memory, (size_t)experts->slots + 1, experts->used,
                 experts->used_moments);
    if (experts->memory.lacking)
        return false;
    for (size_t i = 0; i < all; i++)
        experts->slot[i] = experts->moments[i] = -1;
    return true;
}

static int allocate(struct mp_experts *experts, struct mp_error *error) {
    const struct mp_experts_layout *layout = &experts->layout;
    size_t slots = (size_t)experts->slots * experts->kept;
    size_t copies = (size_t)layout->regions * (size_t)layout->copies * experts->copy_stride;
    size_t element = mp_element_bytes(experts->device);
    float **state[] = {&experts->parameter, &experts->first, &experts->second,
                       &experts->host_gradient};
    int states = layout->serves ? 1 : layout->host ? 4 : 3;
    if (!allocate_tables(experts))
        return mp_fail(error, MP_ENOMEM, "no memory for the places of %d experts", experts->slots);
    for (int i = 0; i < states; i++)
        *state[i] = zeroed_state(experts, slots);
    if (!layout->serves) {
        experts->gradient = zeroed(experts, slots, sizeof(float));
        experts->copy_gradient = zeroed(experts, copies, sizeof(float));
    }
    experts->copy_parameter = zeroed(experts, copies, element);
    bool apart = experts->device->element != MP_FLOAT32 || layout->host;
    experts->working = apart ? zeroed(experts, slots, element) : experts->parameter;
    if (experts->blocks.lacking)
        return mp_fail(error, MP_ENOMEM,
                       "no memory for %d experts, or slices of them, of %zu bytes each, and %d x "
                       "%d copies of %zu bytes",
                       experts->slots, experts->kept * sizeof(float), layout->regions,
                       layout->copies, experts->chunk * sizeof(float));
    return MP_OK;
}

/* Slices, and slots for what this rank keeps of them. */
static int cut(struct mp_experts *experts, const struct mp_placement home[],
               struct mp_error *error) {
    enum mp_optimizer_split split = experts->layout.optimizer;
    bool of_replicas = mp_optimizer_of_replicas(split);
    experts->keepers = of_replicas ? mp_keepers(split, &home[0], 0) : experts->layout.ranks;
    experts->slice = (experts->chunk + (size_t)experts->keepers - 1) / (size_t)experts->keepers;
    experts->slots = 0;
    for (int i = 0; i < experts->layers * experts->experts; i++) {
        int layer = i / experts->experts, expert = i % experts->experts, piece;
        if (of_replicas && mp_keepers(split, &home[layer], expert) != experts->keepers)
            return mp_fail(error, MP_EPLAN,
                           "layer %d: expert %d has %d replicas to keep its slices, others have %d",
                           layer, expert, mp_keepers(split, &home[layer], expert),
                           experts->keepers);
        experts->slots += keeps(experts, &home[layer], expert, &piece);
    }
    return MP_OK;
}

int mp_experts_create(const struct mp_model_shape *shape, struct mp_device *device, uint64_t seed,
                      const struct mp_placement home[], const struct mp_experts_layout *layout,
                      struct mp_experts *experts, struct mp_error *error) {
    bool sliced = mp_optimizer_sliced(layout->optimizer);
    *experts = (struct mp_experts){.device = device,
                                   .blocks = {.device = device},
                                   .layout = *layout,
                                   .layers = shape->layers,
                                   .experts = mp_model_plan_experts(shape),
                                   .chunk = mp_model_expert_floats(shape),
                                   .keepers = 1,
                                   .slots = layout->slots + 1};
    if (sliced)
        MP_TRY(cut(experts, home, error));
    experts->kept = sliced ? experts->slice : experts->chunk;
    experts->copy_stride = sliced ? (size_t)experts->keepers * experts->slice : experts->chunk;
    int code = allocate(experts, error);
    if (!code)
        code = fill(experts, shape, seed, home, error);
    if (!code)
        mp_experts_refresh_all(experts, NULL);
    if (code)
        mp_experts_destroy(experts);
    return code;
}

void mp_experts_destroy(struct mp_experts *experts) {
    if (!experts)
        return;
    mp_device_memory_release(&experts->blocks);
    mp_arena_release(&experts->memory);
    *experts = (struct mp_experts){0};
}

static int first_free(bool used[], int slots) {
    for (int slot = 0; slot < slots; slot++)
        if (!used[slot])
            return slot;
    return -1;
}

int mp_experts_take(struct mp_experts *experts, int layer, int expert) {
    int at = layer * experts->experts + expert;
    int slot = first_free(experts->used, experts->slots);
    int moments = first_free(experts->used_moments, experts->slots);
    if (slot < 0 || moments < 0)
        return -1;
    experts->used[slot] = experts->used_moments[moments] = true;
    experts->held++;
    experts->moments[at] = moments;
    return experts->slot[at] = slot;
}

void mp_experts_give(struct mp_experts *experts, int layer, int expert) {
    int at = layer * experts->experts + expert;
    experts->used[experts->slot[at]] = experts->used_moments[experts->moments[at]] = false;
    experts->held--;
    experts->slot[at] = experts->moments[at] = -1;
}

/* Where a place of a layer's region begins, floats. */
static size_t place_at(const struct mp_experts *experts, int layer, int place) {
    const struct mp_experts_layout *layout = &experts->layout;
    size_t region = (size_t)(layer % layout->regions);
    return (region * (size_t)layout->copies + (size_t)place) * experts->copy_stride;
}

/* Puts a copy of a layer there. */
static int locate_copy(const struct mp_experts *experts, int layer, int expert, int place,
                       void *parameter[], float *gradient[], struct mp_error *error) {
    const struct mp_experts_layout *layout = &experts->layout;
    if (place >= layout->copies)
        return mp_fail(error, MP_ELIMIT,
                       "layer %d: the plan brings more than %d copies to rank %d, more than the "
                       "system announced",
                       layer, layout->copies, layout->rank);
    size_t at = place_at(experts, layer, place);
    parameter[expert] = mp_element_at(experts->device, experts->copy_parameter, at);
    if (gradient)
        gradient[expert] = experts->copy_gradient ? experts->copy_gradient + at : NULL;
    return MP_OK;
}

int mp_experts_locate_held(const struct mp_experts *experts, int layer,
                           const struct mp_placement *placement, void *parameter[],
                           float *gradient[], struct mp_error *error) {
    int copies = 0, code = MP_OK;
    for (int e = 0; e < experts->experts && !code; e++) {
        parameter[e] = gradient[e] = NULL;
        if (mp_placement_holds(placement, e, experts->layout.rank))
            code = locate_copy(experts, layer, e, copies++, parameter, gradient, error);
    }
    return code;
}

/* Free places of a region: those of copies that were sent ahead in vain, then those behind all that
 * were sent. */
struct free_places {
    int expert, sent; /* experts looked at so far, and those of them that were sent here */
    int behind;
};

static int next_place(const struct mp_experts *experts, const struct mp_plan *plan,
                      void *const parameter[], struct free_places *places) {
    while (places->expert < plan->experts) {
        int expert = places->expert++;
        if (!mp_plan_keeps(plan, expert, experts->layout.rank))
            continue;
        int place = places->sent++;
        if (parameter[expert] != mp_element_at(experts->device, experts->copy_parameter,
                                               place_at(experts, plan->layer, place)))
            return place;
    }
    return places->sent + places->behind++;
}

/* Copies that were sent ahead and are wanted. */
static int locate_kept(const struct mp_experts *experts, const struct mp_plan *plan,
                       void *parameter[], float *gradient[], struct mp_error *error) {
    int rank = experts->layout.rank, code = MP_OK;
    for (int i = 0; i < plan->fetch.count && !code; i++) {
        const struct mp_transfer *transfer = &plan->fetch.item[i];
        int place = 0;
        if (transfer->to != rank || transfer->stage != MP_STAGE_BACKWARD_PREFETCH)
            continue;
        for (int e = 0; e < transfer->expert; e++)
            place += mp_plan_keeps(plan, e, rank);
        code =
            locate_copy(experts, plan->layer, transfer->expert, place, parameter, gradient, error);
    }
    return code;
}

int mp_experts_locate(const struct mp_experts *experts, const struct mp_plan *plan,
                      void *parameter[], float *gradient[], struct mp_error *error) {
    int rank = experts->layout.rank;
    struct free_places places = {0};
    if (experts->slice)
        return mp_experts_locate_held(experts, plan->layer, &plan->during, parameter, gradient,
                                      error);
    for (int e = 0; e < experts->experts; e++) {
        parameter[e] = mp_experts_own_elements(experts, plan->layer, e);
        gradient[e] = mp_experts_own_gradient(experts, plan->layer, e);
    }
    MP_TRY(locate_kept(experts, plan, parameter, gradient, error));
    for (int i = 0; i < plan->fetch.count; i++) {
        const struct mp_transfer *transfer = &plan->fetch.item[i];
        if (transfer->to == rank && transfer->stage != MP_STAGE_BACKWARD_PREFETCH)
            MP_TRY(locate_copy(experts, plan->layer, transfer->expert,
                               next_place(experts, plan, parameter, &places), parameter, gradient,
                               error));
    }
    return MP_OK;
}

int mp_experts_locate_ahead(const struct mp_experts *experts, const struct mp_plan *plan,
                            void *parameter[], struct mp_error *error) {
    const struct mp_transfers *ahead = &plan->ahead;
    int rank = experts->layout.rank;
    for (int e = 0; e < experts->experts; e++)
        parameter[e] = mp_experts_own_elements(experts, plan->layer, e);
    for (int i = 0; i < ahead->count; i++) {
        int expert = ahead->item[i].expert, place = 0;
        if (ahead->item[i].to != rank)
            continue;
        for (int k = 0; k < ahead->count; k++)
            place += ahead->item[k].to == rank && ahead->item[k].expert < expert;
        MP_TRY(locate_copy(experts, plan->layer, expert, place, parameter, NULL, error));
    }
    return MP_OK;
}

bool mp_experts_state(const struct mp_experts *experts, int layer, int expert, float *state[3]) {
    int at = layer * experts->experts + expert;
    float *const what[] = {experts->parameter, experts->first, experts->second};
    const int32_t place[] = {experts->slot[at], experts->moments[at], experts->moments[at]};
    if (experts->slot[at] < 0)
        return false;
    for (int i = 0; i < 3; i++)
        state[i] = what[i] ? what[i] + (size_t)place[i] * experts->kept : NULL;
    return true;
}

/* What lies together of what this rank keeps: all slices, which have no spare slot, or experts that
 * follow each other. */
struct stretch {
    size_t at, moments, count; /* floats */
};

struct mp_weight_state mp_experts_weight(const struct mp_experts *experts, int layer, int expert,
                                         size_t offset) {
    int at = layer * experts->experts + expert;
    size_t slot = (size_t)experts->slot[at] * experts->kept + offset;
    size_t moments = (size_t)experts->moments[at] * experts->kept + offset;
    return (struct mp_weight_state){experts->parameter + slot, experts->first + moments,
                                    experts->second + moments,
                                    mp_element_at(experts->device, experts->working, slot)};
}

/* Whether place `next` goes on where `so_far` experts from place `first` on have ended. */
static bool goes_on(const struct mp_experts *experts, int first, int so_far, int next) {
    return experts->slot[next] == experts->slot[first] + so_far &&
           experts->moments[next] == experts->moments[first] + so_far;
}

static bool is_due(const struct mp_experts *experts, int place) {
    return experts->slot[place] >= 0 && !experts->updated[place];
}

/* Places of experts, or one of all slices. */
static int places_of(const struct mp_experts *experts) {
    return experts->slice ? 1 : experts->layers * experts->experts;
}

/* Goes on to the next one of what is not updated, from *place on to the one before `all`; false:
 * there is none. */
static bool next_stretch(const struct mp_experts *experts, int all, int *place,
                         struct stretch *stretch) {
    while (*place < all) {
        int i = (*place)++;
        if (experts->slice) {
            *stretch = (struct stretch){0, 0, (size_t)experts->slots * experts->kept};
            return true;
        }
        if (!is_due(experts, i))
            continue;
        int count = 1;
        for (; *place < all; ++*place) {
            bool due = is_due(experts, *place);
            if (due && !goes_on(experts, i, count, *place))
                break;
            count += due;
        }
        *stretch = (struct stretch){(size_t)experts->slot[i] * experts->kept,
                                    (size_t)experts->moments[i] * experts->kept,
                                    (size_t)count * experts->kept};
        return true;
    }
    return false;
}

/* Elements of parameters; those of the host come up into gradients, which have been used, where
 * they are to be rounded. */
static void make_elements(struct mp_experts *experts, mp_stream stream, size_t at, size_t count) {
    struct mp_device *device = experts->device;
    bool rounded = device->element != MP_FLOAT32;
    void *elements = mp_element_at(device, experts->working, at);
    float *here = experts->layout.host ? experts->gradient + at : experts->parameter + at;
    if (experts->layout.host)
        device->operations->copy_from_host(device, stream, rounded ? here : elements,
                                           experts->parameter + at, count * sizeof(float));
    if (rounded)
        device->operations->to_elements(device, stream, count, here, elements);
}

void mp_experts_refresh(struct mp_experts *experts, mp_stream stream, int layer, int expert) {
    int32_t slot = experts->slot[layer * experts->experts + expert];
    if (slot >= 0)
        make_elements(experts, stream, (size_t)slot * experts->kept, experts->kept);
}

void mp_experts_refresh_all(struct mp_experts *experts, mp_stream stream) {
    struct stretch stretch;
    for (int place = 0; next_stretch(experts, places_of(experts), &place, &stretch);)
        make_elements(experts, stream, stretch.at, stretch.count);
}

/* Where the state is, between the two ways over the host's link. */
static void update_on_host(struct mp_experts *experts, mp_stream stream,
                           const struct mp_adamw *settings, const struct stretch *stretch) {
    struct mp_device *host = experts->layout.host;
    size_t bytes = stretch->count * sizeof(float);
    float *gradient = experts->host_gradient + stretch->at;
    experts->device->operations->copy_to_host(experts->device, stream, gradient,
                                              experts->gradient + stretch->at, bytes);
    host->operations->adamw(host, NULL, stretch->count, settings, experts->parameter + stretch->at,
                            gradient, experts->first + stretch->moments,
                            experts->second + stretch->moments, NULL);
    make_elements(experts, stream, stretch->at, stretch->count);
    experts->host_bytes += 2 * (int64_t)bytes;
}

static void update_from(struct mp_experts *experts, mp_stream stream,
                        const struct mp_adamw *settings, int place, int all) {
    struct mp_device *device = experts->device;
    struct stretch stretch;
    while (next_stretch(experts, all, &place, &stretch)) {
        if (experts->layout.host)
            update_on_host(experts, stream, settings, &stretch);
        else
            device->operations->adamw(
                device, stream, stretch.count, settings, experts->parameter + stretch.at,
                experts->gradient + stretch.at, experts->first + stretch.moments,
                experts->second + stretch.moments,
                mp_element_at(device, experts->working, stretch.at));
    }
}

void mp_experts_update_layer(struct mp_experts *experts, mp_stream stream,
                             const struct mp_adamw *settings, int layer) {
    const int first = layer * experts->experts, all = first + experts->experts;
    update_from(experts, stream, settings, first, all);
    for (int place = first; place < all; place++)
        experts->updated[place] = true;
}

void mp_experts_update(struct mp_experts *experts, mp_stream stream,
                       const struct mp_adamw *settings) {
    update_from(experts, stream, settings, 0, places_of(experts));
    memset(experts->updated, 0, (size_t)(experts->layers * experts->experts));
}
