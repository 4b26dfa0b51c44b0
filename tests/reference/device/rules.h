/* Rules of gates, for calls of their operations. */
#pragma once

#include "reference/device/device.h"

/* A softmax over all experts. */
#define SOFTMAX(renormalised) (&(const struct mp_gate_rule){.renormalise = (renormalised)})
