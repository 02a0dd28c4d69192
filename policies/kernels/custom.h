// The form of the functions that `mindspore.ops.Custom` calls: the inputs, then the outputs, with their shapes.
#pragma once

#include <cstdint>
#include <cstring>

#include "vectors.h"

// Compiled for processors with and without AVX2 and FMA; the version is chosen when the library is loaded.
#if defined(__x86_64__) && !defined(__clang__) && __GNUC__ >= 12
#define CLONED __attribute__((target_clones("arch=x86-64-v3", "default")))
#elif defined(__x86_64__) && !defined(__clang__)
// Older compilers choose by one feature only. FMA is enough, because every processor with FMA has AVX.
#define CLONED __attribute__((target_clones("fma", "default")))
#else
// clang does not inline vector functions into clones.
#define CLONED
#endif

namespace minding {

struct Call {
  int count;
  void** data;
  int* dimensions;
  int64_t** shapes;
  const char** types;

  ALWAYS_INLINE float* floats(int i) const { return static_cast<float*>(data[i]); }
  ALWAYS_INLINE int32_t* integers(int i) const { return static_cast<int32_t*>(data[i]); }
  ALWAYS_INLINE bool is_integer(int i) const { return std::strcmp(types[i], "int32") == 0; }
  ALWAYS_INLINE Index size(int i) const {
    Index size = 1;
    for (int d = 0; d < dimensions[i]; d++) size *= shapes[i][d];
    return size;
  }
};

}  // namespace minding

// Defines the kernel `name`, which calls `function` with a `Call`.
#define DEFINE_KERNEL(name, function)                                                                \
  _Pragma("GCC visibility push(default)")                                                            \
  extern "C" CLONED int name(                                                                        \
      int count, void** data, int* dimensions, int64_t** shapes, const char** types, void*, void*) { \
    return function({count, data, dimensions, shapes, types});                                       \
  }                                                                                                  \
  _Pragma("GCC visibility pop")
