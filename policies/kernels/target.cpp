// Moves a target network towards the online network.
#include "custom.h"

namespace minding {
namespace {

enum { TARGET, ONLINE, SHARE, DONE };

// target (n,), updated in place, online (n,), weight of the online network -> the weight again. A weight of 0 changes
// nothing, and with a weight of 1 the target is an exact copy.
ALWAYS_INLINE int move_target(const Call& call) {
  const Index count = call.size(TARGET);
  float* target = call.floats(TARGET);
  const float *online = call.floats(ONLINE), share = *call.floats(SHARE);
  if (share == 1.0f) std::memcpy(target, online, count * sizeof(float));
  else if (share != 0.0f)
    for (Index i = 0; i < count; i++) target[i] -= share * (target[i] - online[i]);
  *call.floats(DONE) = share;
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(move_target, minding::move_target)
