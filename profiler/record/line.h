/* Lines: a thread's buffer of complete records, without a lock on the thread's side.
 *
 * The owner appends at `head`; whoever drains (the owner when it is full, else another thread)
 * writes what lies between `flushed` and `head` and moves `flushed` up, under a lock of drainers.
 * Both are positions in the endless sequence of the line's bytes, and buffer[0] is position `base`.
 * Only the owner moves `base`, and only when it sees flushed == head: a drainer looks at the buffer
 * only while they differ, so each has the buffer's bytes to itself.  Starting over at buffer[0]
 * after every drain keeps the same few cache lines in use. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct spool_line {
    _Atomic uint64_t head;
    uint64_t base;
    uint8_t *buffer; /* the owner's to make */
    /* Written by drainers; in memory of its own, so that draining one line disturbs it once. */
    _Alignas(64) _Atomic uint64_t flushed;
};

/* ---- the owner's side ---- */

/* Bytes of the buffer that can't be had before the line is drained. */
static inline size_t spool_line_used(const struct spool_line *line) {
    return atomic_load_explicit(&line->head, memory_order_relaxed) - line->base;
}

/* Where the next record goes, with room for it if that is free behind what is used; visible to
 * drainers when it is published. */
static inline uint8_t *spool_line_place(struct spool_line *line) {
    uint64_t head = atomic_load_explicit(&line->head, memory_order_relaxed);
    if (atomic_load_explicit(&line->flushed, memory_order_acquire) == head)
        line->base = head;
    return line->buffer + (head - line->base);
}

static inline void spool_line_publish(struct spool_line *line, size_t size) {
    uint64_t head = atomic_load_explicit(&line->head, memory_order_relaxed);
    atomic_store_explicit(&line->head, head + size, memory_order_release);
}

/* ---- the drainer's side, and anybody's whom the owner waits for ---- */

/* What is to be written: its bytes, 0: nothing; to be ended with spool_line_drained. */
static inline size_t spool_line_waiting(struct spool_line *line, uint8_t **records) {
    uint64_t head = atomic_load_explicit(&line->head, memory_order_acquire);
    uint64_t flushed = atomic_load_explicit(&line->flushed, memory_order_relaxed);
    *records = head == flushed ? NULL : line->buffer + (flushed - line->base);
    return head - flushed;
}

static inline void spool_line_drained(struct spool_line *line, size_t size) {
    uint64_t flushed = atomic_load_explicit(&line->flushed, memory_order_relaxed);
    atomic_store_explicit(&line->flushed, flushed + size, memory_order_release);
}

/* Gives up what is there. */
static inline void spool_line_clear(struct spool_line *line) {
    uint8_t *records;
    spool_line_drained(line, spool_line_waiting(line, &records));
}
