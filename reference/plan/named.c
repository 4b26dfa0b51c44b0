#include "reference/plan/named.h"

double mp_named_value(const struct mp_named_number *number, const void *values) {
    const void *member = (const char *)values + number->offset;
    switch (number->kind) {
    case MP_NUMBER_INT:
        return *(const int *)member;
    case MP_NUMBER_INT64:
        return (double)*(const int64_t *)member;
    default:
        return *(const double *)member;
    }
}
