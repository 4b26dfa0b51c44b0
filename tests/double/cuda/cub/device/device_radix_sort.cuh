/* Double of CUB: the radix sort of device memory, of numbers with the places where they stood, as a
 * call with pointers to keys and values.
 *
 * As in CUB a call without temporary storage says how much it needs, and the sort is stable.  What
 * is sorted must not overlap where it goes, and the temporary storage is filled with garbage. */
#pragma once

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <vector>

#include "../../cuda_runtime.h"

namespace cuda_double {

struct radix_sort {
    const uint32_t *keys_in;
    uint32_t *keys_out;
    const int32_t *values_in;
    int32_t *values_out;
    size_t count;
    void *storage;
    size_t storage_bytes;

    bool is_there(const void *from, const void *to) const {
        const char *in = (const char *)from, *out = (const char *)to;
        const size_t bytes = count * sizeof(uint32_t);
        return cuda_double_is_device(from, bytes) && cuda_double_is_device(to, bytes) &&
               (in >= out + bytes || out >= in + bytes);
    }

    void sort() const {
        if (!is_there(keys_in, keys_out) || !is_there(values_in, values_out) ||
            !cuda_double_is_device(storage, storage_bytes)) {
            cuda_double_fault(cudaErrorIllegalAddress,
                              "a radix sort of %zu: an array is not in device memory, or not all "
                              "of it, or overlaps another",
                              count);
            return;
        }
        memset(storage, 0xff, storage_bytes);
        std::vector<size_t> order(count);
        std::iota(order.begin(), order.end(), size_t(0));
        std::stable_sort(order.begin(), order.end(),
                         [this](size_t a, size_t b) { return keys_in[a] < keys_in[b]; });
        for (size_t i = 0; i < count; i++) {
            keys_out[i] = keys_in[order[i]];
            values_out[i] = values_in[order[i]];
        }
    }

    static void run(void *self) {
        static_cast<radix_sort *>(self)->sort();
    }
    static void release(void *self) {
        delete static_cast<radix_sort *>(self);
    }

    cudaError_t queue(cudaStream_t stream) const {
        const cudaError_t error = cuda_double_check();
        if (error || count == 0)
            return error;
        radix_sort *work = new (std::nothrow) radix_sort(*this);
        if (!work)
            return cudaErrorMemoryAllocation;
        if (cuda_double_enqueue(stream, run, release, work))
            return cudaSuccess;
        delete work;
        return cudaErrorInvalidResourceHandle;
    }
};

} // namespace cuda_double

namespace cub {

struct DeviceRadixSort {
    /* All 32 bits of the keys. */
    static cudaError_t SortPairs(void *storage, size_t &storage_bytes, const uint32_t *keys_in,
                                 uint32_t *keys_out, const int32_t *values_in, int32_t *values_out,
                                 int count, int begin_bit, int end_bit, cudaStream_t stream) {
        /* Something that depends on the count, so that no caller gets by with a guess. */
        const size_t needed = 1023 + size_t(count) / 4 * (sizeof *keys_in + sizeof *values_in);
        if (count < 0 || begin_bit != 0 || end_bit != 32 || (storage && storage_bytes < needed))
            return cuda_double_error(cudaErrorInvalidValue);
        if (!storage) {
            storage_bytes = needed;
            return cudaSuccess;
        }
        const cuda_double::radix_sort work = {keys_in,       keys_out, values_in, values_out,
                                              size_t(count), storage,  needed};
        return cuda_double_error(work.queue(stream));
    }
};

} // namespace cub
