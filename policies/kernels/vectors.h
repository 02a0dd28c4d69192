// Vectors of eight numbers, which the compiler maps to the processor's registers, and working memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#define ALWAYS_INLINE inline __attribute__((always_inline))

// A vector of chosen elements of the vectors a (0 to 7) and b (8 to 15).
#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Int8{__VA_ARGS__})
#endif

namespace minding {

typedef int64_t Index;
typedef float Float8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t Int8 __attribute__((vector_size(32)));

constexpr Index LANES = 8;

// Functions that are compiled for one kind of processor, and their vectors. (A type that is an argument of a template
// loses its alignment, hence the structs.)
#if defined(__x86_64__) && !defined(__clang__)
#define FOR_PROCESSORS 1
#define WITH_AVX512 __attribute__((target("avx512f,avx512vl,avx2,fma")))
#define WITH_AVX2 __attribute__((target("avx2,fma")))
inline bool has_avx512() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"); }
inline bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
// The best form of a function for this processor.
#define BEST_OF(name) (has_avx512() ? name##_with_avx512 : has_avx2() ? name##_with_avx2 : name##_anywhere)
#else
#define BEST_OF(name) name##_anywhere
#endif
struct Eight {
  typedef Float8 Vector;
};
struct Sixteen {
  typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));
};

ALWAYS_INLINE Float8 load(const float* x) { return *reinterpret_cast<const Float8*>(x); }
ALWAYS_INLINE void store(float* x, Float8 value) { *reinterpret_cast<Float8*>(x) = value; }
// Up to eight numbers, beginning with x[0], padded with zeros.
ALWAYS_INLINE Float8 load_some(const float* x, Index count) {
  if (count >= LANES) return load(x);
  float some[LANES] = {};
  std::memcpy(some, x, count * sizeof(float));
  return load(some);
}

ALWAYS_INLINE void store_some(float* x, Float8 values, Index count) {
  if (count >= LANES) return store(x, values);
  float some[LANES];
  store(some, values);
  std::memcpy(x, some, count * sizeof(float));
}

ALWAYS_INLINE Float8 where(Int8 condition, Float8 yes, Float8 no) { return condition ? yes : no; }
// The larger of two numbers, NaN if one of them is NaN.
ALWAYS_INLINE Float8 larger(Float8 a, Float8 b) { return where((a > b) | (a != a), a, b); }
// x clipped to the bounds; NaN stays NaN.
ALWAYS_INLINE Float8 bounded(Float8 x, float low, float high) {
  Float8 above = where(x < low, Float8{} + low, x);
  return where(above > high, Float8{} + high, above);
}
ALWAYS_INLINE Index smaller(Index a, Index b) { return a < b ? a : b; }
ALWAYS_INLINE Index round_up(Index n, Index unit) { return (n + unit - 1) / unit * unit; }

ALWAYS_INLINE Float8 square_root(Float8 x) {
  for (Index i = 0; i < LANES; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
}

ALWAYS_INLINE float sum_of(Float8 x) {
  return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

// Memory that a thread keeps from call to call.
class Workspace {
 public:
  float* floats(Index count) {
    if (count > size_) {
      std::free(memory_);
      size_ = count;
      memory_ = static_cast<float*>(std::aligned_alloc(64, round_up(count * sizeof(float), 64)));
      if (memory_ == nullptr) std::abort();
    }
    return memory_;
  }
  ~Workspace() { std::free(memory_); }

 private:
  float* memory_ = nullptr;
  Index size_ = 0;
};

}  // namespace minding
