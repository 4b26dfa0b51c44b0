/* Environment: what a run's figures depend on besides the job, recorded as texts of the run. */
#ifndef MOEPERF_REFERENCE_TRAINER_ENVIRONMENT_H
#define MOEPERF_REFERENCE_TRAINER_ENVIRONMENT_H

#include <stddef.h>

#include "profiler/record/record.h"

/* Processor, cores this process may use, memory, kernel, host, compiler and flags, revision of the
 * build, command line.  Names begin with "environment.". */
void mp_environment_record(struct mp_record_thread *thread, int argc, char *const argv[]);

/* The processor's name, "unknown" where the system does not tell. */
void mp_environment_processor(char *name, size_t size);

#endif
