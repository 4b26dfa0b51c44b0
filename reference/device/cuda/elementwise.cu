/* Sums of arrays, and rounding to elements.
 *
 * Bytes moved per element, none twice: 12 for a sum, 4 + the element's for rounding. */
#include "reference/device/cuda/map.cuh"

namespace {

struct sum {
    static constexpr int COUNT = 4, DEPTH = 4;
    template <int C> struct values { mp::vector<float, C> a, b; };
    const float *a, *b;
    float *out;

    template <int C> __device__ void read(size_t at, values<C> &v) const {
        mp::fetch(a + at, v.a);
        mp::fetch(b + at, v.b);
    }
    template <int C> __device__ void write(size_t at, const values<C> &v) const {
        float result[C];
#pragma unroll
        for (int i = 0; i < C; i++)
            result[i] = v.a.value[i] + v.b.value[i];
        mp::store(out + at, result);
    }
};

template <typename T> struct rounding {
    static constexpr int COUNT = 4, DEPTH = 4;
    template <int C> struct values { mp::vector<float, C> from; };
    const float *from;
    T *to;

    template <int C> __device__ void read(size_t at, values<C> &v) const {
        mp::fetch(from + at, v.from);
    }
    template <int C> __device__ void write(size_t at, const values<C> &v) const {
        mp::store(to + at, v.from.value);
    }
};

void add(struct mp_device *device, mp_stream stream, size_t count, const float *a, const float *b,
         float *out) {
    mp::map(mp_cuda_of(device), "adding arrays", stream, count, sum{a, b, out}, a, b, out);
}

void to_elements(struct mp_device *device, mp_stream stream, size_t count, const float *from,
                 void *to) {
    struct mp_cuda *cuda = mp_cuda_of(device);
    if (to == from)
        return;
    mp::by_element(cuda, [&](auto element) {
        using T = decltype(element);
        T *elements = static_cast<T *>(to);
        mp::map(cuda, "rounding to elements", stream, count, rounding<T>{from, elements}, from,
                elements);
    });
}

} // namespace

void mp_cuda_install_elementwise(struct mp_device_operations *operations) {
    operations->add = add;
    operations->to_elements = to_elements;
}
