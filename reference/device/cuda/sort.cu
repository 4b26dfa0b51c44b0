/* Sorting numbers with the places where they stood, in CUB's words and nobody else's: its headers
 * take longer to compile than all of our kernels. */
#include <cub/device/device_radix_sort.cuh>

#include "reference/device/cuda/cuda.h"

constexpr int KEY_BITS = 32;

size_t mp_cuda_sorting_bytes(int count) {
    size_t bytes = 0;
    const uint32_t *keys = nullptr;
    const int32_t *items = nullptr;
    /* Without memory the library only says how much it wants; a failure comes to light when it
     * sorts. */
    (void)cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, (uint32_t *)nullptr, items,
                                          (int32_t *)nullptr, count, 0, KEY_BITS, nullptr);
    return bytes;
}

bool mp_cuda_sort(struct mp_cuda *cuda, const char *doing, mp_stream stream, int count,
                  const uint32_t *key, uint32_t *sorted_key, const int32_t *item,
                  int32_t *sorted_item, void *memory, size_t bytes) {
    return mp_cuda_note(cuda, doing,
                        cub::DeviceRadixSort::SortPairs(memory, bytes, key, sorted_key, item,
                                                        sorted_item, count, 0, KEY_BITS,
                                                        mp_cuda_stream(cuda, stream)));
}
