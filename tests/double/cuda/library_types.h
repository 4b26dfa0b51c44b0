/* Double of CUDA's element types, as cuBLAS and others name them. */
#pragma once

typedef enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16BF = 14 } cudaDataType;
#ifndef __cplusplus
typedef enum cudaDataType_t cudaDataType_t;
#endif
