/* Recent: a ring of the last iterations and their sums. */
#include "reference/plan/recent.h"

#include <string.h>

int mp_recent_create(struct mp_arena *memory, size_t cells, int window, struct mp_recent *recent,
                     struct mp_error *error) {
    *recent = (struct mp_recent){.cells = cells, .window = window};
    if (cells < 1 || window < 1)
        return mp_fail(error, MP_EINVAL, "a window of %d iterations of %zu loads", window, cells);
    MP_TAKE(memory, recent->ring, cells * (size_t)window);
    MP_TAKE(memory, recent->sum, cells);
    return mp_arena_check(memory, error);
}

/* The row to overwrite.  Sums change by what is written minus what was there. */
static int64_t *next_row(struct mp_recent *recent) {
    int64_t *row = recent->ring + (size_t)recent->next * recent->cells;

    if (recent->count < recent->window)
        recent->count++;
    if (++recent->next == recent->window)
        recent->next = 0;
    return row;
}

void mp_recent_push_totals(struct mp_recent *recent, const struct mp_load load[], int layers) {
    int64_t *row = next_row(recent);
    size_t experts = (size_t)load->experts;

    for (size_t cell = 0; cell < recent->cells; cell++)
        recent->sum[cell] -= row[cell];
    for (int layer = 0; layer < layers; layer++)
        mp_load_expert_totals(&load[layer], row + (size_t)layer * experts);
    for (size_t cell = 0; cell < recent->cells; cell++)
        recent->sum[cell] += row[cell];
}

void mp_recent_push_counts(struct mp_recent *recent, const struct mp_load load[], int layers) {
    int64_t *restrict row = next_row(recent);
    int64_t *restrict sum = recent->sum;

    for (int layer = 0; layer < layers; layer++) {
        size_t cells = (size_t)load[layer].ranks * (size_t)load[layer].experts;
        const uint32_t *restrict count = load[layer].count;
        for (size_t cell = 0; cell < cells; cell++) {
            int64_t routes = count[cell];
            sum[cell] += routes - row[cell];
            row[cell] = routes;
        }
        row += cells;
        sum += cells;
    }
}

size_t mp_recent_save_rows(const struct mp_recent *recent, void *buffer, size_t size) {
    size_t row_bytes = recent->cells * sizeof *recent->ring;
    size_t needed = (size_t)recent->count * row_bytes;
    char *to = buffer;

    if (!buffer || size < needed)
        return needed;
    for (int age = recent->count; age > 0; age--, to += row_bytes) {
        int row = (recent->next - age + recent->window) % recent->window;
        memcpy(to, recent->ring + (size_t)row * recent->cells, row_bytes);
    }
    return needed;
}

int mp_recent_load_rows(struct mp_recent *recent, int64_t count, const void *buffer, size_t size,
                        struct mp_error *error) {
    size_t row_bytes = recent->cells * sizeof *recent->ring;

    if (count < 0 || size / row_bytes != (size_t)count || size % row_bytes != 0)
        return mp_fail(error, MP_EFORMAT, "%lld saved iterations of %zu loads can't have %zu bytes",
                       (long long)count, recent->cells, size);
    int64_t skipped = count > recent->window ? count - recent->window : 0;
    recent->count = (int)(count - skipped);
    recent->next = recent->count % recent->window;
    memset(recent->ring, 0, (size_t)recent->window * row_bytes);
    memset(recent->sum, 0, row_bytes);
    memcpy(recent->ring, (const char *)buffer + (size_t)skipped * row_bytes,
           (size_t)recent->count * row_bytes);
    for (size_t cell = 0; cell < (size_t)recent->count * recent->cells; cell++)
        recent->sum[cell % recent->cells] += recent->ring[cell];
    return MP_OK;
}

/* Saved: this head, then the rows. */
struct head {
    char magic[8];
    int64_t cells;
    int64_t count;
};
static const char MAGIC[8] = {'M', 'P', 'R', 'E', 'C', 'N', 'T', '1'};

size_t mp_recent_save(const struct mp_recent *recent, void *buffer, size_t size) {
    struct head head = {.cells = (int64_t)recent->cells, .count = recent->count};
    size_t needed = sizeof head + mp_recent_save_rows(recent, NULL, 0);

    if (size < needed)
        return needed;
    memcpy(head.magic, MAGIC, sizeof MAGIC);
    memcpy(buffer, &head, sizeof head);
    mp_recent_save_rows(recent, (char *)buffer + sizeof head, size - sizeof head);
    return needed;
}

int mp_recent_load(struct mp_recent *recent, const void *buffer, size_t size,
                   struct mp_error *error) {
    struct head head;

    if (size < sizeof head)
        return mp_fail(error, MP_EFORMAT, "a saved window of loads has at least %zu bytes, not %zu",
                       sizeof head, size);
    memcpy(&head, buffer, sizeof head);
    if (memcmp(head.magic, MAGIC, sizeof MAGIC) != 0)
        return mp_fail(error, MP_EFORMAT, "what was saved is no window of loads of this version");
    if (head.cells != (int64_t)recent->cells)
        return mp_fail(error, MP_EFORMAT, "the saved window is of %lld loads, the job has %zu",
                       (long long)head.cells, recent->cells);
    return mp_recent_load_rows(recent, head.count, (const char *)buffer + sizeof head,
                               size - sizeof head, error);
}
