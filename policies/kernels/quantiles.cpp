// The quantile Huber loss of every pair of a quantile and a sample; see `policies.ops.distributional` for the formula.
#include "custom.h"
#include "vectors.h"

namespace minding {
namespace {

constexpr Int8 PLACES = {0, 1, 2, 3, 4, 5, 6, 7};

// quantiles (B, N), levels (N,) or (B, N), samples (B, M), kappa ()
//   -> loss (B,), its derivatives with respect to the quantiles (B, N)
ALWAYS_INLINE int quantile_huber(const Call& call) {
  const Index batch = call.shapes[0][0], quantiles = call.shapes[0][1], samples = call.shapes[2][1];
  const Index level_stride = call.dimensions[1] > 1 ? quantiles : 0;
  const float kappa = *call.floats(3);
  for (Index b = 0; b < batch; b++) {
    const float *found = call.floats(0) + b * quantiles, *level = call.floats(1) + b * level_stride;
    const float* target = call.floats(2) + b * samples;
    float total = 0.0f, *slopes = call.floats(5) + b * quantiles;
    for (Index i = 0; i < quantiles; i++) {
      Float8 loss{}, slope{};
      for (Index j = 0; j < samples; j += LANES) {
        const Index count = samples - j;
        Float8 error = load_some(target + j, count) - found[i];
        if (count < LANES) error = where(PLACES < static_cast<int32_t>(count), error, Float8{});
        const Float8 within = bounded(error, -kappa, kappa);
        const Float8 weighted = where(error < 0.0f, (1.0f - level[i]) * within, level[i] * within);
        loss += weighted * (error - 0.5f * within);
        slope += weighted;
      }
      total += sum_of(loss) / samples;
      slopes[i] = -sum_of(slope) / samples;
    }
    call.floats(4)[b] = total;
  }
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(quantile_huber, minding::quantile_huber)
