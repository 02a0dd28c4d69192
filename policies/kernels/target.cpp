// Moves a target network towards the online network.
#include "custom.h"

namespace minding {
namespace {

enum { TARGET, ONLINE, SHARE, DONE };

// target (n,), updated in place, online (n,), weight of the online network -> the weight again
ALWAYS_INLINE int move_target(const Call& call) {
  const Index count = call.size(TARGET);
  float* target = call.floats(TARGET);
  const float *online = call.floats(ONLINE), share = *call.floats(SHARE);
  for (Index i = 0; i < count; i++) target[i] -= share * (target[i] - online[i]);
  *call.floats(DONE) = share;
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(move_target, minding::move_target)
