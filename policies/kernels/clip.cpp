// Clips numbers; NaN stays NaN, and the gradient passes where numbers were unchanged.
#include "custom.h"

namespace minding {
namespace {

// x, bounds (2,) -> x clipped to the bounds
ALWAYS_INLINE int clip(const Call& call) {
  const float *x = call.floats(0), low = call.floats(1)[0], high = call.floats(1)[1];
  float* y = call.floats(2);
  for (Index i = 0, count = call.size(0); i < count; i++) {
    float bounded = x[i] < low ? low : x[i];
    y[i] = bounded > high ? high : bounded;
  }
  return 0;
}

// gradient of the result, x, bounds (2,) -> gradient of x
ALWAYS_INLINE int clip_gradient(const Call& call) {
  const float *dy = call.floats(0), *x = call.floats(1), low = call.floats(2)[0], high = call.floats(2)[1];
  float* dx = call.floats(3);
  for (Index i = 0, count = call.size(0); i < count; i++) dx[i] = ((x[i] < low) | (x[i] > high)) ? 0.0f : dy[i];
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(clip, minding::clip)
DEFINE_KERNEL(clip_gradient, minding::clip_gradient)
