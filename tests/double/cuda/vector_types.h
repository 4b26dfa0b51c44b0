/* Double of CUDA's short vectors, those that kernels use, with their alignments, and of dim3. */
#pragma once

typedef struct uint3 {
    unsigned int x, y, z;
} uint3;
typedef struct __attribute__((aligned(8))) uint2 {
    unsigned int x, y;
} uint2;
typedef struct __attribute__((aligned(16))) uint4 {
    unsigned int x, y, z, w;
} uint4;
typedef struct __attribute__((aligned(8))) float2 {
    float x, y;
} float2;

typedef struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int across = 1, unsigned int down = 1, unsigned int deep = 1)
        : x(across), y(down), z(deep) {}
#endif
} dim3;
