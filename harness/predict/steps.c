#include "harness/predict/steps.h"

#include <stdlib.h>
#include <string.h>

#include "profiler/record/record.h"

/* ---- memory ---- */

void mp_steps_destroy(struct mp_steps *steps) {
    for (int s = 0; steps->traffic && s < steps->steps_limit; s++)
        mp_traffic_destroy(steps->traffic[s]);
    free(steps->waits);
    free(steps->traffic);
    free(steps->alone);
    free(steps->expert[MP_FORWARD]);
    free(steps->expert[MP_BACKWARD]);
    free(steps->tokens);
    *steps = (struct mp_steps){0};
}

void mp_steps_memory_destroy(struct mp_steps_memory *memory) {
    free(memory->rows);
    free(memory->group);
    free(memory->late);
    free(memory->row);
    free(memory->touched);
    *memory = (struct mp_steps_memory){0};
}

static int fail(int steps, int ranks, struct mp_error *error) {
    return mp_fail(error, MP_ENOMEM, "no memory for an exchange of %d steps between %d ranks",
                   steps, ranks);
}

static int reserve_steps(struct mp_steps *steps, const struct mp_network *network, int count,
                         int ranks, struct mp_error *error) {
    size_t width = (size_t)ranks, most = (size_t)count + 1;
    if (count <= steps->steps_limit)
        return MP_OK;
    mp_steps_destroy(steps);
    steps->waits = calloc(most, sizeof *steps->waits);
    steps->traffic = calloc(most, sizeof *steps->traffic);
    steps->alone = malloc(most * width * sizeof *steps->alone);
    steps->expert[MP_FORWARD] = malloc(most * width * sizeof(double));
    steps->expert[MP_BACKWARD] = malloc(most * width * sizeof(double));
    steps->tokens = malloc(most * width * sizeof *steps->tokens);
    if (!steps->waits || !steps->traffic || !steps->alone || !steps->expert[MP_FORWARD] ||
        !steps->expert[MP_BACKWARD] || !steps->tokens)
        return fail(count, ranks, error);
    for (int code; steps->steps_limit < count; steps->steps_limit++)
        if ((code = mp_traffic_create(network, &steps->traffic[steps->steps_limit], error)))
            return code;
    return MP_OK;
}

static int reserve_memory(struct mp_steps_memory *memory, int steps, int64_t places, int ranks,
                          struct mp_error *error) {
    int64_t rows = (steps + 1) * places;
    if (!memory->row)
        memory->row = calloc((size_t)ranks, sizeof *memory->row);
    if (!memory->touched)
        memory->touched = malloc(((size_t)ranks + 1) * sizeof *memory->touched);
    if (!memory->rows || rows > memory->rows_limit) {
        free(memory->rows);
        memory->rows = malloc(2 * (size_t)rows * sizeof *memory->rows);
        memory->rows_limit = memory->rows ? 2 * rows : 0;
    }
    if (places > memory->places_limit) {
        free(memory->group);
        free(memory->late);
        memory->group = malloc(2 * (size_t)places * sizeof *memory->group);
        memory->late = malloc(2 * (size_t)places * sizeof *memory->late);
        memory->places_limit = memory->group && memory->late ? 2 * places : 0;
    }
    if (!memory->row || !memory->touched || !memory->rows || rows > memory->rows_limit ||
        places > memory->places_limit)
        return fail(steps, ranks, error);
    memset(memory->rows, 0, (size_t)rows * sizeof *memory->rows);
    return MP_OK;
}

/* ---- rows ---- */

/* Where the holders are, and whose copies come late. */
static void mark_places(struct mp_steps_memory *memory, const struct mp_plan *plan,
                        const uint64_t *late) {
    int words = plan->during.words;
    for (int expert = 0; expert < plan->experts; expert++)
        for (int32_t at = plan->holder_begin[expert]; at < plan->holder_begin[expert + 1]; at++) {
            int rank = plan->holder[at];
            memory->group[at] = rank / plan->group_size;
            memory->late[at] = late && (late[(long)expert * words + rank / 64] >> (rank & 63) & 1);
        }
}

/* A source's rows at every place and step, and to every rank; how many ranks get some. */
static int spread_source(struct mp_steps *steps, const struct mp_steps_memory *memory,
                         const struct mp_plan *plan, int source) {
    const int64_t *begin = plan->part_begin + (int64_t)source * plan->experts;
    const struct mp_dispatch_part *end = plan->part + begin[plan->experts];
    const int32_t *holder = plan->holder, *groups = memory->group;
    const bool *late = memory->late;
    int32_t *to = memory->touched;
    uint32_t *row = memory->row;
    int group = source / plan->group_size, count = steps->steps, touched = 0;
    for (const struct mp_dispatch_part *part = plan->part + begin[0]; part < end; part++) {
        int64_t at = part->first, past = at + part->run;
        do {
            int rank = holder[at], step = groups[at] - group;
            int64_t *rows = memory->rows + at * (count + 1);
            step += step < 0 ? count : 0;
            if (late[at]) {
                if (rank == source) {
                    rows[count] += part->count;
                    steps->late = true;
                    continue;
                }
                steps->waits[step] = true;
            }
            if (row[rank] == 0 && part->count > 0)
                to[touched++] = rank;
            row[rank] += part->count;
            rows[step] += part->count;
        } while (__builtin_expect(++at < past, 0)); /* most parts are a run of 1 */
    }
    return touched;
}

static void fill_traffic(struct mp_steps *steps, const struct mp_steps_memory *memory,
                         const struct mp_plan *plan, double row_bytes) {
    for (int source = 0; source < plan->topology.ranks; source++) {
        int touched = spread_source(steps, memory, plan, source);
        int group = source / plan->group_size;
        for (int i = 0; i < touched; i++) {
            int rank = memory->touched[i], step = rank / plan->group_size - group;
            step += step < 0 ? steps->steps : 0;
            mp_traffic_add(steps->traffic[step], source, rank, memory->row[rank] * row_bytes);
            memory->row[rank] = 0;
        }
    }
}

/* Work in experts by step and rank, added up by place. */
static void count_work(struct mp_steps *steps, const struct mp_steps_memory *memory,
                       struct mp_costs *costs, const struct mp_plan *plan) {
    size_t ranks = (size_t)plan->topology.ranks, width = (size_t)steps->steps + 1;
    memset(steps->expert[MP_FORWARD], 0, width * ranks * sizeof(double));
    memset(steps->expert[MP_BACKWARD], 0, width * ranks * sizeof(double));
    memset(steps->tokens, 0, width * ranks * sizeof *steps->tokens);
    for (int32_t at = 0; at < plan->holder_begin[plan->experts]; at++) {
        const int64_t *rows = memory->rows + (size_t)at * width;
        for (size_t step = 0; step < width; step++) {
            size_t cell = step * ranks + (size_t)plan->holder[at];
            if (rows[step] == 0)
                continue;
            steps->tokens[cell] += rows[step];
            for (int direction = MP_FORWARD; direction <= MP_BACKWARD; direction++)
                steps->expert[direction][cell] += mp_costs_expert(costs, rows[step], direction);
        }
    }
}

int mp_steps_fill(struct mp_steps *steps, struct mp_steps_memory *memory,
                  struct mp_network *network, struct mp_costs *costs, const struct mp_plan *plan,
                  const uint64_t *late, struct mp_error *error) {
    int ranks = plan->topology.ranks, count = ranks / plan->group_size;
    int code = reserve_steps(steps, network, count, ranks, error);
    if (!code)
        code = reserve_memory(memory, count, plan->holder_begin[plan->experts], ranks, error);
    if (code)
        return code;
    steps->steps = count;
    steps->late = false;
    memset(steps->waits, 0, (size_t)count * sizeof *steps->waits);
    for (int step = 0; step < count; step++)
        mp_traffic_clear(steps->traffic[step]);
    mark_places(memory, plan, late);
    fill_traffic(steps, memory, plan, mp_costs_row_bytes(costs));
    count_work(steps, memory, costs, plan);
    for (int step = 0; step < count; step++)
        mp_network_alone(network, steps->traffic[step],
                         steps->alone + (size_t)step * (size_t)ranks);
    return MP_OK;
}
