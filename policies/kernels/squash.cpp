// The tanh-normal distribution of `ops.distributions.squashed_gaussian`, where the formulas are, and its gradient.
#include <cmath>

#include "custom.h"

namespace minding {
namespace {

const float LOG_2 = 0.69314718056f, HALF_LOG_2PI = 0.91893853320f;

ALWAYS_INLINE float softplus(float x) { return (x > 0.0f ? x : 0.0f * x) + std::log1p(std::exp(-std::fabs(x))); }

// mean, log deviation, noise (B, A) -> action (B, A), log-probability (B,)
ALWAYS_INLINE int squash(const Call& call) {
  const Index batch = call.shapes[0][0], size = call.shapes[0][1];
  const float *mean = call.floats(0), *log_std = call.floats(1), *noise = call.floats(2);
  float *action = call.floats(3), *log_prob = call.floats(4);
  for (Index i = 0; i < batch; i++) {
    float sum = 0.0f;
    for (Index j = i * size; j < (i + 1) * size; j++) {
      float u = mean[j] + std::exp(log_std[j]) * noise[j];
      action[j] = std::tanh(u);
      sum += 2.0f * (softplus(-2.0f * u) + u) - log_std[j] - 0.5f * noise[j] * noise[j];
    }
    log_prob[i] = sum - size * (2.0f * LOG_2 + HALF_LOG_2PI);
  }
  return 0;
}

// action, log deviation, noise, gradient of the action (B, A), gradient of the log-probability (B,)
//   -> gradients of mean and log deviation (B, A)
ALWAYS_INLINE int squash_gradient(const Call& call) {
  const Index batch = call.shapes[0][0], size = call.shapes[0][1];
  const float *action = call.floats(0), *log_std = call.floats(1), *noise = call.floats(2);
  const float *daction = call.floats(3), *dlog_prob = call.floats(4);
  float *dmean = call.floats(5), *dlog_std = call.floats(6);
  for (Index i = 0; i < batch; i++) {
    for (Index j = i * size; j < (i + 1) * size; j++) {
      // d/du of 2 softplus(-2u) + 2u is 2 tanh(u).
      float a = action[j], du = daction[j] * (1.0f - a * a) + dlog_prob[i] * 2.0f * a;
      dmean[j] = du;
      dlog_std[j] = du * noise[j] * std::exp(log_std[j]) - dlog_prob[i];
    }
  }
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(squash, minding::squash)
DEFINE_KERNEL(squash_gradient, minding::squash_gradient)
