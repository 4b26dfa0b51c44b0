/* The files of this folder, each an exchange.  Private to it. */
#pragma once

#include "reference/schedule/exchange/exchange.h"

#define MP_EXCHANGE_DECLARED(kind, descriptor)                                                     \
    extern const struct mp_exchange mp_exchange_##descriptor;
MP_EXCHANGES(MP_EXCHANGE_DECLARED)
#undef MP_EXCHANGE_DECLARED
