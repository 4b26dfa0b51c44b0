#include "reference/model/distinct.h"

int64_t mp_fan_numbers(const struct mp_fan *fan, int top_k) {
    return fan->out + (int64_t)fan->in * (fan->ways + top_k);
}

int64_t mp_distinct_numbers(const struct mp_fan fan[], int fans, int top_k) {
    int64_t numbers = 0;
    for (int i = 0; i < fans; i++)
        numbers += mp_fan_numbers(&fan[i], top_k);
    return numbers;
}

void mp_distinct_place(struct mp_fan fan[], int fans, int top_k, void *memory) {
    int32_t *at = memory;
    for (int i = 0; i < fans; i++) {
        fan[i].gather = at;
        fan[i].sum = fan[i].gather + fan[i].out;
        fan[i].pick = fan[i].sum + (int64_t)fan[i].in * fan[i].ways;
        fan[i].weight = (float *)fan[i].pick;
        at += mp_fan_numbers(&fan[i], top_k);
    }
}
