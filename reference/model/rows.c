#include "reference/model/rows.h"

static int64_t round_up(int64_t rows) {
    return (rows + MP_ROWS_TOGETHER - 1) / MP_ROWS_TOGETHER * MP_ROWS_TOGETHER;
}

int64_t mp_rows_bytes(const struct mp_rows *rows, int64_t needed) {
    return (int64_t)rows->bytes * (needed > rows->room ? round_up(needed) : rows->room);
}

static bool allocate(struct mp_device *device, int64_t room, struct mp_rows *rows) {
    const struct mp_device_operations *operations = device->operations;
    size_t bytes = (size_t)room * rows->bytes;
    rows->memory =
        rows->host ? operations->host_allocate(device, bytes) : operations->allocate(device, bytes);
    rows->room = rows->memory ? room : 0;
    rows->allocations += rows->memory != NULL;
    return rows->memory;
}

bool mp_rows_reserve(struct mp_device *device, mp_stream stream, int64_t needed, int64_t wanted,
                     struct mp_rows *rows) {
    if (rows->memory && needed <= rows->room)
        return true;
    if (rows->memory)
        device->operations->stream_synchronize(device, stream);
    mp_rows_release(device, rows);
    needed = round_up(needed > 0 ? needed : 1);
    wanted = round_up(wanted);
    struct mp_error before = device->error;
    if (wanted > needed && allocate(device, wanted, rows))
        return true;
    if (device->error.code == MP_ENOMEM)
        device->error = before; /* what is only wanted may be missing */
    return allocate(device, needed, rows);
}

void mp_rows_release(struct mp_device *device, struct mp_rows *rows) {
    if (rows->host)
        device->operations->host_release(device, rows->memory);
    else if (rows->memory)
        device->operations->release(device, rows->memory);
    rows->memory = NULL;
    rows->room = 0;
}
