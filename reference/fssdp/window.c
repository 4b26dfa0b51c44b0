/* Load prediction: loads change slowly, so the sum of the last ones orders the next. */
#include <stdlib.h>
#include <string.h>

#include "reference/fssdp/fssdp.h"

int mp_window_create(int layers, int experts, int window, struct mp_window *state,
                     struct mp_error *error) {
    *state = (struct mp_window){.layers = layers, .experts = experts, .window = window};
    if (layers < 1 || experts < 1 || window < 1)
        return mp_fail(error, MP_EINVAL, "a window of %d iterations, %d layers and %d experts",
                       window, layers, experts);
    size_t cells = (size_t)layers * (size_t)experts;
    state->ring = calloc(cells * (size_t)window, sizeof *state->ring);
    state->sum = calloc(cells, sizeof *state->sum);
    if (state->ring && state->sum)
        return MP_OK;
    mp_window_destroy(state);
    return mp_fail(error, MP_ENOMEM, "no memory for a window of %d iterations of %d x %d loads",
                   window, layers, experts);
}

void mp_window_destroy(struct mp_window *state) {
    free(state->ring);
    free(state->sum);
    *state = (struct mp_window){0};
}

static size_t cells_of(const struct mp_window *state) {
    return (size_t)state->layers * (size_t)state->experts;
}

/* The ring's next row, taken out of the sums, to be filled and then added by add_row(). */
static int64_t *drop_row(struct mp_window *state) {
    size_t cells = cells_of(state);
    int64_t *row = state->ring + (size_t)state->next * cells;

    if (state->count == state->window)
        for (size_t cell = 0; cell < cells; cell++)
            state->sum[cell] -= row[cell];
    else
        state->count++;
    if (++state->next == state->window)
        state->next = 0;
    return row;
}

static void add_row(struct mp_window *state, const int64_t row[]) {
    for (size_t cell = 0; cell < cells_of(state); cell++)
        state->sum[cell] += row[cell];
}

void mp_window_push(struct mp_window *state, const struct mp_load load[]) {
    int64_t *row = drop_row(state);

    for (int layer = 0; layer < state->layers; layer++)
        mp_load_expert_totals(&load[layer], row + (size_t)layer * (size_t)state->experts);
    add_row(state, row);
}

const int64_t *mp_window_layer(const struct mp_window *state, int layer) {
    return state->sum + (size_t)layer * (size_t)state->experts;
}

/* A saved window: this head, then `count` iterations of [layers][experts] sums, oldest first. */
struct head {
    char magic[8];
    int32_t layers, experts, count, reserved;
};
static const char MAGIC[8] = {'M', 'P', 'W', 'I', 'N', 'D', 'W', '1'};

size_t mp_window_save(const struct mp_window *state, void *buffer, size_t size) {
    struct head head = {.layers = state->layers, .experts = state->experts, .count = state->count};
    size_t row_bytes = cells_of(state) * sizeof *state->ring;
    size_t needed = sizeof head + (size_t)state->count * row_bytes;
    char *to = buffer;

    if (size < needed)
        return needed;
    memcpy(head.magic, MAGIC, sizeof MAGIC);
    memcpy(to, &head, sizeof head);
    to += sizeof head;
    for (int age = state->count; age > 0; age--, to += row_bytes) {
        int row = state->next - age;
        if (row < 0)
            row += state->window;
        memcpy(to, state->ring + (size_t)row * cells_of(state), row_bytes);
    }
    return needed;
}

int mp_window_load(struct mp_window *state, const void *buffer, size_t size,
                   struct mp_error *error) {
    struct head head;
    size_t row_bytes = cells_of(state) * sizeof *state->ring;
    const char *from = buffer;

    if (size < sizeof head)
        return mp_fail(error, MP_EFORMAT, "a saved load window has at least %zu bytes, not %zu",
                       sizeof head, size);
    memcpy(&head, from, sizeof head);
    if (memcmp(head.magic, MAGIC, sizeof MAGIC) != 0)
        return mp_fail(error, MP_EFORMAT, "what was saved is no load window of this version");
    if (head.layers != state->layers || head.experts != state->experts)
        return mp_fail(error, MP_EFORMAT,
                       "the saved load window is of %d layers with %d experts, the job has %d with "
                       "%d",
                       head.layers, head.experts, state->layers, state->experts);
    if (head.count < 0 || (size - sizeof head) / row_bytes != (size_t)head.count ||
        (size - sizeof head) % row_bytes != 0)
        return mp_fail(error, MP_EFORMAT,
                       "a saved load window of %d iterations can't have %zu bytes", head.count,
                       size);
    memset(state->sum, 0, row_bytes);
    state->count = 0;
    state->next = 0;
    for (int row = 0; row < head.count; row++) {
        int64_t *place = drop_row(state);
        memcpy(place, from + sizeof head + (size_t)row * row_bytes, row_bytes);
        add_row(state, place);
    }
    return MP_OK;
}
