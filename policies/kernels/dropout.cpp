// Dropout by a random stream of 2^32 numbers, a hash of their positions; see `networks.layers.Dropout`.
#include "custom.h"

namespace minding {
namespace {

// The number at a position; its steps are a permutation of all numbers of 32 bits.
ALWAYS_INLINE uint32_t hashed(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// x, position of the first number, threshold, factor -> x times the factor, or 0 where the number is below the threshold
ALWAYS_INLINE int dropout(const Call& call) {
  const float *x = call.floats(0), factor = call.floats(3)[0];
  uint32_t first = static_cast<uint32_t>(call.integers(1)[0]), threshold = static_cast<uint32_t>(call.integers(2)[0]);
  float* y = call.floats(4);
  for (Index i = 0, count = call.size(0); i < count; i++)
    y[i] = hashed(first + static_cast<uint32_t>(i)) < threshold ? 0.0f : x[i] * factor;
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(dropout, minding::dropout)
