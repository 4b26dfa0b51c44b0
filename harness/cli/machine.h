/* Machine: what this computer has, in words. */
#ifndef MOEPERF_HARNESS_CLI_MACHINE_H
#define MOEPERF_HARNESS_CLI_MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "reference/base/error.h"

struct cli_machine {
    char processor[256]; /* "unknown" where /proc/cpuinfo does not say */
    int cores;           /* that this process may use */
    int64_t memory;      /* bytes */
};
void cli_machine_read(struct cli_machine *machine);

/* Starts the cpu device and asks it what it is: "oneDNN 2.6.3, avx512". */
int cli_machine_compute(char *text, size_t size, struct mp_error *error);

#endif
