#include "reference/trainer/numbers.h"

void mp_record_named(struct mp_record_thread *thread, int64_t iteration, int layer,
                     const struct mp_named_number table[], const void *values) {
    for (const struct mp_named_number *number = table; number->name; number++)
        mp_record_number(thread, iteration, layer, number->name, mp_named_value(number, values));
}
