/* What all back ends share. */
#include "reference/device/device.h"

void mp_device_destroy(struct mp_device *device) {
    if (device)
        device->operations->destroy(device);
}

int mp_device_check(struct mp_device *device, struct mp_error *error) {
    if (device->error.code == MP_OK)
        return MP_OK;
    return mp_fail(error, device->error.code, "%s", device->error.text);
}

void mp_device_describe(const struct mp_device *device, char *text, size_t size) {
    device->operations->describe(device, text, size);
}
