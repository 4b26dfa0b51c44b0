/* Double of CUDA's short vectors and dim3, with their sizes and alignments. */
#ifndef MOEPERF_TESTS_DOUBLE_CUDA_VECTOR_TYPES_H
#define MOEPERF_TESTS_DOUBLE_CUDA_VECTOR_TYPES_H

#define CUDA_DOUBLE_VECTORS(type, name, bytes)                                                     \
    struct name##1 {                                                                               \
        type x;                                                                                    \
    };                                                                                             \
    struct __attribute__((aligned(2 * (bytes)))) name##2 {                                         \
        type x, y;                                                                                 \
    };                                                                                             \
    struct name##3 {                                                                               \
        type x, y, z;                                                                              \
    };                                                                                             \
    struct __attribute__((aligned(4 * (bytes) < 16 ? 4 * (bytes) : 16))) name##4 {                 \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    typedef struct name##1 name##1;                                                                \
    typedef struct name##2 name##2;                                                                \
    typedef struct name##3 name##3;                                                                \
    typedef struct name##4 name##4

CUDA_DOUBLE_VECTORS(signed char, char, 1);
CUDA_DOUBLE_VECTORS(unsigned char, uchar, 1);
CUDA_DOUBLE_VECTORS(short, short, 2);
CUDA_DOUBLE_VECTORS(unsigned short, ushort, 2);
CUDA_DOUBLE_VECTORS(int, int, 4);
CUDA_DOUBLE_VECTORS(unsigned int, uint, 4);
CUDA_DOUBLE_VECTORS(float, float, 4);
CUDA_DOUBLE_VECTORS(long long, longlong, 8);
CUDA_DOUBLE_VECTORS(unsigned long long, ulonglong, 8);
CUDA_DOUBLE_VECTORS(double, double, 8);
#undef CUDA_DOUBLE_VECTORS

typedef struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int across = 1, unsigned int down = 1, unsigned int deep = 1)
        : x(across), y(down), z(deep) {}
    constexpr dim3(uint3 size) : x(size.x), y(size.y), z(size.z) {}
    constexpr operator uint3() const {
        return uint3{x, y, z};
    }
#endif
} dim3;

#endif
