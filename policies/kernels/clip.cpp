// Bounds for numbers as kernels of a MindSpore graph.
#include "clip.h"

#include "custom.h"

namespace minding {
namespace {

// x, bounds (2,) -> x within the bounds
ALWAYS_INLINE int clip(const Call& call) {
  clip_numbers(call.size(0), call.floats(0), call.floats(1), call.floats(2));
  return 0;
}

// gradient of the result, x, bounds (2,) -> gradient of x
ALWAYS_INLINE int clip_gradient(const Call& call) {
  clip_numbers_gradient(call.size(0), call.floats(0), call.floats(1), call.floats(2), call.floats(3));
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(clip, minding::clip)
DEFINE_KERNEL(clip_gradient, minding::clip_gradient)
