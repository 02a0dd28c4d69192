// The tanh-normal distribution and its gradient; see `ops.distributions.squashed_gaussian` for the formulas.
#include "custom.h"
#include "functions.h"

namespace minding {
namespace {

const float LOG_2 = 0.69314718056f, HALF_LOG_2PI = 0.91893853320f;

// mean, log standard deviation in [-87, 87], noise (B, A) -> action (B, A), log-probability (B,)
ALWAYS_INLINE int squash(const Call& call) {
  static thread_local Workspace workspace;
  const Index batch = call.shapes[0][0], size = call.shapes[0][1], count = batch * size;
  float* terms = workspace.floats(round_up(count, LANES));
  for (Index i = 0; i < count; i += LANES) {
    const Index rest = count - i;
    Float8 log_std = load_some(call.floats(1) + i, rest), noise = load_some(call.floats(2) + i, rest);
    Float8 u = load_some(call.floats(0) + i, rest) + exponential(log_std) * noise;
    store_some(call.floats(3) + i, hyperbolic_tangent(u), rest);
    // 2 (softplus(-2u) + u) = 2 (log(1 + e^-2|u|) + |u|), where e^-87 is practically 0.
    Float8 size_of_u = magnitude(u), exponent = where(size_of_u > 43.5f, Float8{} - 87.0f, -2.0f * size_of_u);
    Float8 softplus = log_of_one_plus(exponential(exponent)) + size_of_u;
    store(terms + i, 2.0f * softplus - log_std - 0.5f * noise * noise);
  }
  float* log_prob = call.floats(4);
  for (Index i = 0; i < batch; i++) {
    float sum = 0.0f;
    for (Index j = 0; j < size; j++) sum += *terms++;
    log_prob[i] = sum - size * (2.0f * LOG_2 + HALF_LOG_2PI);
  }
  return 0;
}

// action, log standard deviation, noise, gradient of the action (B, A), gradient of the log-probability (B,)
//   -> gradients of mean and log standard deviation (B, A)
ALWAYS_INLINE int squash_gradient(const Call& call) {
  static thread_local Workspace workspace;
  const Index batch = call.shapes[0][0], size = call.shapes[0][1], count = batch * size;
  float* of_elements = workspace.floats(round_up(count, LANES));
  for (Index i = 0; i < batch; i++)
    for (Index j = 0; j < size; j++) of_elements[i * size + j] = call.floats(4)[i];
  for (Index i = 0; i < count; i += LANES) {
    const Index rest = count - i;
    Float8 action = load_some(call.floats(0) + i, rest), log_std = load_some(call.floats(1) + i, rest);
    Float8 noise = load_some(call.floats(2) + i, rest), daction = load_some(call.floats(3) + i, rest);
    Float8 dlog_prob = load_some(of_elements + i, rest);
    // The derivative of 2 softplus(-2u) + 2u is 2 tanh(u).
    Float8 du = daction * (1.0f - action * action) + 2.0f * dlog_prob * action;
    store_some(call.floats(5) + i, du, rest);
    store_some(call.floats(6) + i, du * noise * exponential(log_std) - dlog_prob, rest);
  }
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(squash, minding::squash)
DEFINE_KERNEL(squash_gradient, minding::squash_gradient)
