#include "reference/device/memory.h"

#include <stdlib.h>

struct mp_device_block {
    struct mp_device_block *before;
    void *memory;
    void (*release)(struct mp_device *device, void *memory);
};

static void *take(struct mp_device_memory *memory, int64_t count, size_t size,
                  void *(*allocate)(struct mp_device *device, size_t bytes),
                  void (*release)(struct mp_device *device, void *memory)) {
    struct mp_device_block *block = malloc(sizeof *block);
    void *taken = block ? allocate(memory->device, (size_t)(count > 0 ? count : 1) * size) : NULL;
    if (!taken) {
        free(block);
        memory->lacking = true;
        return NULL;
    }
    *block = (struct mp_device_block){memory->latest, taken, release};
    memory->latest = block;
    return taken;
}

void *mp_device_take(struct mp_device_memory *memory, int64_t count, size_t size) {
    const struct mp_device_operations *operations = memory->device->operations;
    return take(memory, count, size, operations->allocate, operations->release);
}

void *mp_device_take_host(struct mp_device_memory *memory, int64_t count, size_t size) {
    const struct mp_device_operations *operations = memory->device->operations;
    return take(memory, count, size, operations->host_allocate, operations->host_release);
}

void mp_device_memory_release(struct mp_device_memory *memory) {
    while (memory->latest) {
        struct mp_device_block *block = memory->latest;
        memory->latest = block->before;
        block->release(memory->device, block->memory);
        free(block);
    }
}
