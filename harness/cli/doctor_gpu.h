/* What moeperf doctor says of GPUs: training on them (reference/device/cuda, reference/comm/nccl),
 * and the collectors of their work (profiler/cupti, profiler/nccl). */
#ifndef MOEPERF_HARNESS_CLI_DOCTOR_GPU_H
#define MOEPERF_HARNESS_CLI_DOCTOR_GPU_H

#include <stdbool.h>
#include <stddef.h>

/* Whether jobs with device cuda would run: "2 x NVIDIA H200, 139.8 GiB each", or what is missing.
 */
bool cli_doctor_cuda(char *detail, size_t size);
/* Whether ranks could talk over NCCL. */
bool cli_doctor_nccl_transport(char *detail, size_t size);

/* Whether the collector would record here; `detail` says so, or what stands in the way: the toolkit
 * was absent when moeperf was built, its library is now, there is no driver, no GPU. */
bool cli_doctor_cupti(char *detail, size_t size);
/* Whether the plug-in is there.  NCCL itself comes with the programs that use it. */
bool cli_doctor_nccl(char *detail, size_t size);

#endif
