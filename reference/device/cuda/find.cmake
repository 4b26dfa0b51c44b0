# What is built with CUDA: libmoeperf-cuda.so, the device, and NCCL's transport.
#
# MOEPERF_CUDA_OFF: why they are not built, for `moeperf doctor` and the tests; empty where they are.
# Targets then link CUDA::cudart_static and CUDA::cublas, and .cu files are compiled for
# CMAKE_CUDA_ARCHITECTURES.
set(MOEPERF_CUDA AUTO CACHE STRING "GPU code: ON, OFF, or AUTO where CUDA's compiler is found")
set_property(CACHE MOEPERF_CUDA PROPERTY STRINGS AUTO ON OFF)

include(CheckLanguage)
# The double of CUDA that tests run kernels on is C++, and so is what nvcc makes of them.
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  set(CMAKE_CXX_STANDARD 17)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
endif()

set(cuda_off "")
if(MOEPERF_CUDA STREQUAL "AUTO" OR MOEPERF_CUDA)
  find_program(MOEPERF_NVCC nvcc HINTS ${CUDAToolkit_ROOT} ENV CUDA_PATH PATHS /usr/local/cuda
               PATH_SUFFIXES bin DOC "CUDA's compiler")
  if(CMAKE_CUDA_COMPILER) # named by the user, or found by an earlier run
    set(cuda_compiler ${CMAKE_CUDA_COMPILER})
  elseif(MOEPERF_NVCC)
    set(cuda_compiler ${MOEPERF_NVCC})
    set(ENV{CUDACXX} ${MOEPERF_NVCC}) # where check_language looks
  endif()
  if(NOT cuda_compiler)
    set(cuda_off "CUDA's compiler (nvcc) was not found when moeperf was built")
  elseif(NOT CMAKE_CXX_COMPILER)
    set(cuda_off "there was no C++ compiler for CUDA's to work with when moeperf was built")
  endif()
else()
  set(cuda_off "it was built with -DMOEPERF_CUDA=OFF")
endif()

# Volta, Ampere, Hopper and Blackwell, as far as this toolkit knows them, unless CMake's variable or
# CUDAARCHS in the environment says what else.  Code of one generation runs on its later members;
# what is newer than all is compiled for when it is first used.
if(NOT cuda_off AND NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT "$ENV{CUDAARCHS}" STREQUAL "")
  set(CMAKE_CUDA_ARCHITECTURES "$ENV{CUDAARCHS}" CACHE STRING
      "compute capabilities that GPU code is compiled for, 90 for 9.0")
endif()
if(NOT cuda_off AND NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND ${cuda_compiler} --list-gpu-arch OUTPUT_VARIABLE cuda_known ERROR_QUIET)
  set(cuda_architectures "")
  foreach(architecture 70 80 90 100)
    if(cuda_known MATCHES "compute_${architecture}\n")
      list(APPEND cuda_architectures ${architecture})
    endif()
  endforeach()
  if(cuda_architectures)
    set(CMAKE_CUDA_ARCHITECTURES "${cuda_architectures}" CACHE STRING
        "compute capabilities that GPU code is compiled for, 90 for 9.0")
  else()
    set(cuda_off "${cuda_compiler} knows none of the GPUs 70, 80, 90 and 100")
  endif()
endif()

if(NOT cuda_off)
  set(ENV{CUDAARCHS} "${CMAKE_CUDA_ARCHITECTURES}") # for the trial of the compiler, too
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    find_package(CUDAToolkit 12.5) # the first with grouped products
    if(NOT TARGET CUDA::cublas OR NOT TARGET CUDA::cudart_static)
      set(cuda_off "cuBLAS and the CUDA runtime, 12.5 or later, were not found when moeperf was built")
    endif()
  else()
    set(cuda_off "CUDA's compiler does not work with this C++ compiler (CMakeFiles/CMakeError.log)")
  endif()
endif()

if(cuda_off AND MOEPERF_CUDA AND NOT MOEPERF_CUDA STREQUAL "AUTO")
  message(FATAL_ERROR "MOEPERF_CUDA is ${MOEPERF_CUDA}, but ${cuda_off}")
elseif(cuda_off)
  message(STATUS "CUDA is off: ${cuda_off}")
else()
  message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} is on, for ${CMAKE_CUDA_ARCHITECTURES}")
endif()
set(MOEPERF_CUDA_OFF "${cuda_off}" CACHE INTERNAL "why there is no GPU code")
unset(cuda_off) # this file is included: its names are the project's
unset(cuda_compiler)
unset(cuda_known)
unset(cuda_architectures)
