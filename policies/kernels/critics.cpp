// The objectives of learning with N critics; see `policies.ops.values` for the formulas. Values q are (N, B).
#include "custom.h"

namespace minding {
namespace {

// The critic with the smallest value of a row, which begins at q[0] and continues every `batch` numbers; the last one if
// values are equal, and the first one that is NaN.
ALWAYS_INLINE Index lowest(const float* q, Index count, Index batch) {
  Index best = 0;
  for (Index k = 1; k < count; k++) {
    float a = q[best * batch], b = q[k * batch];
    best = ((a < b) | (a != a)) ? best : k;
  }
  return best * batch;
}

// reward, discount, terminated (B,), values q of the next action, its log-probability (B,), temperature ()
//   -> target (B,)
ALWAYS_INLINE int soft_target(const Call& call) {
  const Index batch = call.size(0), count = call.size(3) / batch;
  const float *reward = call.floats(0), *discount = call.floats(1), *terminated = call.floats(2), *q = call.floats(3);
  const float *log_prob = call.floats(4), alpha = *call.floats(5);
  float* target = call.floats(6);
  for (Index i = 0; i < batch; i++) {
    float next_value = q[i + lowest(q + i, count, batch)] - alpha * log_prob[i];
    target[i] = reward[i] + discount[i] * (1.0f - terminated[i]) * next_value;
  }
  return 0;
}

// reward, discount, terminated (B,), values q of the next action -> target (B,)
ALWAYS_INLINE int value_target(const Call& call) {
  const Index batch = call.size(0), count = call.size(3) / batch;
  const float *reward = call.floats(0), *discount = call.floats(1), *terminated = call.floats(2), *q = call.floats(3);
  float* target = call.floats(4);
  for (Index i = 0; i < batch; i++)
    target[i] = reward[i] + discount[i] * (1.0f - terminated[i]) * q[i + lowest(q + i, count, batch)];
  return 0;
}

// values q, target (B,) -> loss (), mean of the first critic's values ()
ALWAYS_INLINE int critic_loss(const Call& call) {
  const Index batch = call.size(1), count = call.size(0) / batch;
  const float *q = call.floats(0), *target = call.floats(1);
  float loss = 0.0f, sum = 0.0f;
  for (Index i = 0; i < batch; i++) {
    float squares = 0.0f;
    for (Index k = count - 1; k >= 0; k--) {
      float error = q[k * batch + i] - target[i];
      squares += error * error;
    }
    loss += 0.5f * squares;
    sum += q[i];
  }
  *call.floats(2) = loss / batch;
  *call.floats(3) = sum / batch;
  return 0;
}

// values q, target (B,), gradient of the loss () -> gradient of q
ALWAYS_INLINE int critic_loss_gradient(const Call& call) {
  const Index batch = call.size(1), count = call.size(0) / batch;
  const float *q = call.floats(0), *target = call.floats(1), share = *call.floats(2) / batch;
  float* dq = call.floats(3);
  for (Index k = 0; k < count; k++)
    for (Index i = 0; i < batch; i++) dq[k * batch + i] = share * (q[k * batch + i] - target[i]);
  return 0;
}

// values q of the action, its log-probability (B,), temperature () -> loss (), mean log-probability ()
ALWAYS_INLINE int soft_policy_loss(const Call& call) {
  const Index batch = call.size(1), count = call.size(0) / batch;
  const float *q = call.floats(0), *log_prob = call.floats(1), alpha = *call.floats(2);
  float loss = 0.0f, sum = 0.0f;
  for (Index i = 0; i < batch; i++) {
    // The product comes after the loop, so that compilers fuse it with the difference.
    const float value = q[i + lowest(q + i, count, batch)];
    loss += alpha * log_prob[i] - value;
    sum += log_prob[i];
  }
  *call.floats(3) = loss / batch;
  *call.floats(4) = sum / batch;
  return 0;
}

// values q of the action, its log-probability (B,), temperature (), gradient of the loss ()
//   -> gradients of q and the log-probability (B,)
ALWAYS_INLINE int soft_policy_loss_gradient(const Call& call) {
  const Index batch = call.size(1), count = call.size(0) / batch;
  const float *q = call.floats(0), alpha = *call.floats(2), share = *call.floats(3) / batch;
  float *dq = call.floats(4), *dlog_prob = call.floats(5);
  std::memset(dq, 0, count * batch * sizeof(float));
  for (Index i = 0; i < batch; i++) {
    dq[i + lowest(q + i, count, batch)] = -share;
    dlog_prob[i] = alpha * share;
  }
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(soft_target, minding::soft_target)
DEFINE_KERNEL(value_target, minding::value_target)
DEFINE_KERNEL(critic_loss, minding::critic_loss)
DEFINE_KERNEL(critic_loss_gradient, minding::critic_loss_gradient)
DEFINE_KERNEL(soft_policy_loss, minding::soft_policy_loss)
DEFINE_KERNEL(soft_policy_loss_gradient, minding::soft_policy_loss_gradient)
