/* Double of CUB: the radix sorts of device memory, as calls with pointers to keys and values.
 *
 * As in CUB a call without temporary storage says how much it needs, the sort is stable, and
 * negative zero counts as zero.  What is sorted must not overlap where it goes, and the temporary
 * storage is filled with garbage. */
#ifndef MOEPERF_TESTS_DOUBLE_CUDA_CUB_CUB_CUH
#define MOEPERF_TESTS_DOUBLE_CUDA_CUB_CUB_CUH

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>
#include <type_traits>
#include <vector>

#include "../cuda_runtime.h"

namespace cuda_double {

/* Bits of a key that order as unsigned numbers do as the keys do. */
template <typename Key> inline uint64_t ordered_bits(Key key) {
    static_assert(std::is_arithmetic<Key>::value && sizeof(Key) <= 8, "a number");
    const uint64_t top = uint64_t(1) << (8 * sizeof(Key) - 1);
    uint64_t bits = 0;
    memcpy(&bits, &key, sizeof key);
    if (std::is_floating_point<Key>::value) {
        if (bits == top) /* negative zero */
            bits = 0;
        return bits & top ? ~bits & (top | (top - 1)) : bits | top;
    }
    return std::is_signed<Key>::value ? bits ^ top : bits;
}

template <typename Key, typename Value> struct radix_sort {
    const Key *keys_in;
    Key *keys_out;
    const Value *values_in;
    Value *values_out;
    size_t count;
    int begin_bit, end_bit;
    void *storage;
    size_t storage_bytes;

    /* Something that depends on the count, so that no caller gets by with a guess. */
    static size_t bytes_needed(size_t count) {
        return 1023 + count / 4 * (sizeof(Key) + sizeof(Value));
    }

    bool arrays_are_there() const {
        const size_t keys = count * sizeof(Key), values = count * sizeof(Value);
        return cuda_double_is_device(keys_in, keys) && cuda_double_is_device(keys_out, keys) &&
               cuda_double_is_device(values_in, values) &&
               cuda_double_is_device(values_out, values) &&
               cuda_double_is_device(storage, storage_bytes);
    }

    bool arrays_overlap() const {
        const char *keys = (const char *)keys_in, *to = (const char *)keys_out;
        const char *values = (const char *)values_in, *values_to = (const char *)values_out;
        const size_t key_bytes = count * sizeof(Key), value_bytes = count * sizeof(Value);
        return (keys < to + key_bytes && to < keys + key_bytes) ||
               (values < values_to + value_bytes && values_to < values + value_bytes);
    }

    uint64_t digits(size_t at) const {
        uint64_t bits = ordered_bits(keys_in[at]) >> begin_bit;
        const int width = end_bit - begin_bit;
        return width < 64 ? bits & ((uint64_t(1) << width) - 1) : bits;
    }

    void sort() const {
        if (!arrays_are_there() || arrays_overlap()) {
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
                         [this](size_t a, size_t b) { return digits(a) < digits(b); });
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

    cudaError_t queue(void *given, size_t &given_bytes, cudaStream_t stream) {
        if (begin_bit < 0 || end_bit > int(8 * sizeof(Key)) || begin_bit > end_bit)
            return cuda_double_error(cudaErrorInvalidValue);
        const size_t needed = bytes_needed(count);
        if (!given) {
            given_bytes = needed;
            return cudaSuccess;
        }
        if (given_bytes < needed)
            return cuda_double_error(cudaErrorInvalidValue);
        const cudaError_t error = cuda_double_check();
        if (error || count == 0)
            return cuda_double_error(error);
        storage = given;
        storage_bytes = needed;
        radix_sort *work = new (std::nothrow) radix_sort(*this);
        if (!work)
            return cuda_double_error(cudaErrorMemoryAllocation);
        if (cuda_double_enqueue(stream, run, release, work))
            return cudaSuccess;
        delete work;
        return cuda_double_error(cudaErrorInvalidResourceHandle);
    }
};

} // namespace cuda_double

namespace cub {

struct DeviceRadixSort {
    template <typename Key, typename Value, typename Count>
    static cudaError_t SortPairs(void *storage, size_t &storage_bytes, const Key *keys_in,
                                 Key *keys_out, const Value *values_in, Value *values_out,
                                 Count count, int begin_bit = 0, int end_bit = sizeof(Key) * 8,
                                 cudaStream_t stream = 0) {
        if (std::is_signed<Count>::value && count < Count(0))
            return cuda_double_error(cudaErrorInvalidValue);
        cuda_double::radix_sort<Key, Value> work = {keys_in,    keys_out,      values_in,
                                                    values_out, size_t(count), begin_bit,
                                                    end_bit,    nullptr,       0};
        return work.queue(storage, storage_bytes, stream);
    }
};

} // namespace cub

#endif
