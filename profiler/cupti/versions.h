/* Records of CUPTI whose structs differ between the toolkits that this is compiled with, from CUDA
 * 12.5 (API version 23) on: kernels have another one since 13.0 (130000), copies since 12.8 (26).
 * A CUPTI hands out the newest it knows, which begins as the older ones do. */
#pragma once

#include <cupti.h>

#if CUPTI_API_VERSION >= 130000
typedef CUpti_ActivityKernel10 cupti_kernel;
_Static_assert(sizeof(cupti_kernel) == 216, "CUPTI's kernel record");
#else
typedef CUpti_ActivityKernel9 cupti_kernel;
_Static_assert(sizeof(cupti_kernel) == 208, "CUPTI's kernel record");
#endif

#if CUPTI_API_VERSION >= 26
typedef CUpti_ActivityMemcpy6 cupti_copy;
_Static_assert(sizeof(cupti_copy) == 96, "CUPTI's copy record");
#define CUPTI_COPY_COUNT(copy) ((uint32_t)(copy)->copyCount)
#else
typedef CUpti_ActivityMemcpy5 cupti_copy;
_Static_assert(sizeof(cupti_copy) == 88, "CUPTI's copy record");
#define CUPTI_COPY_COUNT(copy) 1 /* there are no batches */
#endif

_Static_assert(sizeof(CUpti_ActivityMemcpyPtoP4) == 96, "CUPTI's peer-to-peer copy record");
_Static_assert(sizeof(CUpti_ActivityMemset4) == 88, "CUPTI's set record");
_Static_assert(sizeof(CUpti_ActivityAPI) == 40, "CUPTI's call record");
_Static_assert(sizeof(CUpti_ActivityExternalCorrelation) == 24, "CUPTI's external id record");
_Static_assert(sizeof(CUpti_ActivityOverhead3) == 56, "CUPTI's overhead record");
