/* What CUB has its radix sorts in. */
#include "../cub.cuh"
