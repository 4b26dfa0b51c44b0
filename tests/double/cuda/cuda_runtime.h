/* Double of CUDA C++: what a .cu file includes, so that g++ -x c++ compiles it and its kernels run
 * on the CPU.  Kernels are launched with cudaLaunchKernelEx. */
#pragma once

#include "cuda_runtime_api.h"

#ifdef __cplusplus

#include <tuple>
#include <type_traits>
#include <utility>

#include "device_functions.h"
#include "double.h"

template <typename T> cudaError_t cudaMalloc(T **memory, size_t bytes) {
    return cudaMalloc((void **)(void *)memory, bytes);
}
namespace cuda_double {

template <typename T> inline bool is_reachable(const T &) {
    return true;
}
template <typename T> inline bool is_reachable(T *const &pointer) {
    return std::is_function<T>::value || cuda_double_is_reachable((const void *)pointer);
}

/* A kernel with its arguments, as they were when it was launched. */
template <typename... Parameters> struct kernel_call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;

    static void call(void *self) {
        kernel_call *of = static_cast<kernel_call *>(self);
        std::apply(of->kernel, of->arguments);
    }
    /* The first parameter, from 1, that points to where no kernel can read; 0: none does. */
    static int astray(const void *self) {
        const kernel_call *of = static_cast<const kernel_call *>(self);
        return std::apply(
            [](const Parameters &...parameters) {
                int number = 0, first = 0;
                (((void)number++, first = first || is_reachable(parameters) ? first : number), ...);
                return first;
            },
            of->arguments);
    }
    static void release(void *self) {
        delete static_cast<kernel_call *>(self);
    }
};

} // namespace cuda_double

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                               Arguments &&...arguments) {
    static_assert((std::is_trivially_copyable<Parameters>::value && ...),
                  "a kernel takes what can be copied byte by byte");
    static_assert((!std::is_reference<Parameters>::value && ...),
                  "a kernel takes its parameters by value");
    typedef cuda_double::kernel_call<Parameters...> Call;
    static_assert(sizeof(Call) <= 32764, "a kernel takes at most 32764 bytes of parameters");
    return cuda_double_launch(config, (const void *)kernel, Call::call, Call::astray, Call::release,
                              new Call{kernel, {std::forward<Arguments>(arguments)...}});
}

#endif
