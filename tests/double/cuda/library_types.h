/* Double of CUDA's element types, as cuBLAS and others name them. */
#ifndef MOEPERF_TESTS_DOUBLE_CUDA_LIBRARY_TYPES_H
#define MOEPERF_TESTS_DOUBLE_CUDA_LIBRARY_TYPES_H

typedef enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16BF = 14 } cudaDataType;
#ifndef __cplusplus
typedef enum cudaDataType_t cudaDataType_t;
#endif

#endif
