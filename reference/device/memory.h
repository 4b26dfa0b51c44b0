/* Memory of a device that lives and ends together, as tables of an arena do (base/arena.h). */
#pragma once

#include "reference/device/device.h"

struct mp_device_memory {
    struct mp_device *device;       /* borrowed */
    struct mp_device_block *latest; /* owned */
    bool lacking;                   /* there was no room for something */
};

/* `count` items of `size` bytes, not cleared, until all is released; without items room for one.
 * NULL, and lacking from then on, where there is no room. */
void *mp_device_take(struct mp_device_memory *memory, int64_t count, size_t size);
/* The same of the host, that copies are fastest with (host_allocate). */
void *mp_device_take_host(struct mp_device_memory *memory, int64_t count, size_t size);
void mp_device_memory_release(struct mp_device_memory *memory); /* accepts a zeroed one */
MP_END(device_memory, struct mp_device_memory, mp_device_memory_release(it))
