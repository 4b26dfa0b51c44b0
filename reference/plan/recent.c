/* Recent: a ring of the last iterations and their sums. */
#include "reference/plan/recent.h"

#include <stdbool.h>
#include <string.h>

void mp_recent_create(struct mp_arena *memory, size_t cells, int window, struct mp_recent *recent) {
    *recent = (struct mp_recent){.cells = cells, .window = window};
    MP_TAKE(memory, recent->ring, cells * (size_t)window);
    MP_TAKE(memory, recent->sum, cells);
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

/* Saved: this head, then the iterations, oldest first. */
struct head {
    char magic[8];
    int64_t cells;
    int64_t count;
};
static const char MAGIC[8] = {'M', 'P', 'R', 'E', 'C', 'N', 'T', '1'};

size_t mp_recent_save(const void *opaque, void *buffer, size_t size) {
    const struct mp_recent *recent = opaque;
    struct head head = {.cells = (int64_t)recent->cells, .count = recent->count};
    size_t row_bytes = recent->cells * sizeof *recent->ring;
    size_t needed = sizeof head + (size_t)recent->count * row_bytes;
    char *to = buffer;

    if (size < needed)
        return needed;
    memcpy(head.magic, MAGIC, sizeof MAGIC);
    memcpy(to, &head, sizeof head);
    to += sizeof head;
    for (int age = recent->count; age > 0; age--, to += row_bytes) {
        int row = (recent->next - age + recent->window) % recent->window;
        memcpy(to, recent->ring + (size_t)row * recent->cells, row_bytes);
    }
    return needed;
}

/* Routes from outside add up without overflow and are never negative. */
static bool are_routes(const char *from, size_t bytes) {
    int64_t routes;

    for (size_t at = 0; at < bytes; at += sizeof routes) {
        memcpy(&routes, from + at, sizeof routes);
        if (routes < 0 || routes > INT64_C(1) << 42)
            return false;
    }
    return true;
}

static void take_rows(struct mp_recent *recent, const char *from, int64_t count) {
    size_t row_bytes = recent->cells * sizeof *recent->ring;
    int64_t skipped = count > recent->window ? count - recent->window : 0;

    recent->count = (int)(count - skipped);
    recent->next = recent->count % recent->window;
    memset(recent->ring, 0, (size_t)recent->window * row_bytes);
    memset(recent->sum, 0, row_bytes);
    memcpy(recent->ring, from + (size_t)skipped * row_bytes, (size_t)recent->count * row_bytes);
    for (size_t cell = 0; cell < (size_t)recent->count * recent->cells; cell++)
        recent->sum[cell % recent->cells] += recent->ring[cell];
}

int mp_recent_load(void *opaque, const void *buffer, size_t size, struct mp_error *error) {
    struct mp_recent *recent = opaque;
    struct head head;
    const char *rows = (const char *)buffer + sizeof head;
    size_t row_bytes = recent->cells * sizeof *recent->ring;

    if (size < sizeof head)
        return mp_fail(error, MP_EFORMAT, "a saved window of loads has at least %zu bytes, not %zu",
                       sizeof head, size);
    size -= sizeof head;
    memcpy(&head, buffer, sizeof head);
    if (memcmp(head.magic, MAGIC, sizeof MAGIC) != 0)
        return mp_fail(error, MP_EFORMAT, "what was saved is no window of loads of this version");
    if (head.cells != (int64_t)recent->cells)
        return mp_fail(error, MP_EFORMAT, "the saved window is of %lld loads, the job has %zu",
                       (long long)head.cells, recent->cells);
    if (head.count < 0 || size / row_bytes != (size_t)head.count || size % row_bytes != 0)
        return mp_fail(error, MP_EFORMAT, "%lld saved iterations of %zu loads can't have %zu bytes",
                       (long long)head.count, recent->cells, size);
    if (!are_routes(rows, size))
        return mp_fail(error, MP_EFORMAT, "the saved window has impossible routes");
    take_rows(recent, rows, head.count);
    return MP_OK;
}
