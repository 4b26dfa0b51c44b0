/* Updates in backward on processors, whose back end makes none: by the two operations that they are
 * on others. */
#pragma once

#include <stdlib.h>

#include "reference/device/device.h"
#include "tests/support.h"

static int grouped_updates; /* so far */

static inline bool can_update_any(const struct mp_device *device, int weights, int columns_in,
                                  int columns_out) {
    return device->element == MP_FLOAT32 && weights >= 0 && columns_in > 0 && columns_out > 0;
}

static inline void update_by_two(struct mp_device *device, mp_stream stream, int groups,
                                 const int rows[], int columns_in, int columns_out, void *in,
                                 void *out, const struct mp_weight_state state[],
                                 const struct mp_adamw *settings) {
    size_t count = (size_t)columns_in * (size_t)columns_out;
    float *gradient = malloc(count * sizeof *gradient), *from = in, *slope = out;
    assert_non_null(gradient);
    void *const weight[] = {gradient};
    for (int g = 0; g < groups;) {
        const struct mp_weight_state *own = &state[g];
        for (; g < groups && state[g].parameter == own->parameter; g++) {
            device->operations->grouped_gemm(device, stream, MP_GROUPED_WEIGHT_GRADIENT, 1,
                                             &rows[g], columns_in, columns_out, from, weight, slope,
                                             own != &state[g]);
            from += (size_t)rows[g] * (size_t)columns_in;
            slope += (size_t)rows[g] * (size_t)columns_out;
        }
        device->operations->adamw(device, stream, count, settings, own->parameter, gradient,
                                  own->first, own->second, own->working);
    }
    free(gradient);
    grouped_updates++;
}

static inline void update_in_backward(struct mp_device_operations *operations) {
    operations->grouped_update = update_by_two;
    operations->can_update_grouped = can_update_any;
}
