#include "reference/schedule/exchange/exchange.h"

#include <stddef.h>

#include "reference/schedule/exchange/descriptors.h"

const char mp_exchange_choices[] = "flat leader two-level deduplicated";

const struct mp_exchange *mp_exchange_of(enum mp_exchange_kind kind) {
#define MP_EXCHANGE_POINTER(kind, descriptor) &mp_exchange_##descriptor,
    static const struct mp_exchange *const all[] = {MP_EXCHANGES(MP_EXCHANGE_POINTER)};
#undef MP_EXCHANGE_POINTER
    return (unsigned)kind < MP_EXCHANGE_KINDS ? all[kind] : NULL;
}

const char *mp_exchange_name(enum mp_exchange_kind kind) {
    const struct mp_exchange *exchange = mp_exchange_of(kind);
    return exchange ? exchange->name : "no-exchange";
}
