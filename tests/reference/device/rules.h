/* Rules of gates, for calls of their operations. */
#ifndef MOEPERF_TESTS_REFERENCE_DEVICE_RULES_H
#define MOEPERF_TESTS_REFERENCE_DEVICE_RULES_H

#include "reference/device/device.h"

/* A softmax over all experts. */
#define SOFTMAX(renormalised) (&(const struct mp_gate_rule){.renormalise = (renormalised)})

#endif
