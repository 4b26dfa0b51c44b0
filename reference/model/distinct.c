#include "reference/model/distinct.h"

static int64_t picks(const struct mp_fan *fan, int top_k) {
    return (int64_t)fan->in * top_k;
}

int64_t mp_distinct_numbers(const struct mp_fan fan[MP_FANS], int top_k) {
    int64_t numbers = 0;
    for (int i = 0; i < MP_FANS; i++)
        numbers += fan[i].out + (int64_t)fan[i].in * fan[i].ways + picks(&fan[i], top_k);
    return numbers;
}

void mp_distinct_place(struct mp_fan fan[MP_FANS], int top_k, void *memory) {
    int32_t *at = memory;
    for (int i = 0; i < MP_FANS; i++) {
        fan[i].gather = at;
        fan[i].sum = fan[i].gather + fan[i].out;
        fan[i].pick = fan[i].sum + (int64_t)fan[i].in * fan[i].ways;
        fan[i].weight = (float *)fan[i].pick;
        at = fan[i].pick + picks(&fan[i], top_k);
    }
}
