// The objectives of maximum-entropy learning with two critics; see `policies.ops.values` for the formulas.
#include "custom.h"

namespace minding {
namespace {

// The smaller of two numbers, NaN if one of them is.
ALWAYS_INLINE float lower(float a, float b) { return ((a < b) | (a != a)) ? a : b; }

// reward, discount, terminated, values q1 and q2 of the next action, its log-probability (B,), temperature ()
//   -> target (B,)
ALWAYS_INLINE int soft_target(const Call& call) {
  const Index batch = call.size(0);
  const float *reward = call.floats(0), *discount = call.floats(1), *terminated = call.floats(2);
  const float *q1 = call.floats(3), *q2 = call.floats(4), *log_prob = call.floats(5), alpha = *call.floats(6);
  float* target = call.floats(7);
  for (Index i = 0; i < batch; i++) {
    float next_value = lower(q1[i], q2[i]) - alpha * log_prob[i];
    target[i] = reward[i] + discount[i] * (1.0f - terminated[i]) * next_value;
  }
  return 0;
}

// reward, discount, terminated, values q1 and q2 of the next action (B,) -> target (B,)
ALWAYS_INLINE int twin_target(const Call& call) {
  const Index batch = call.size(0);
  const float *reward = call.floats(0), *discount = call.floats(1), *terminated = call.floats(2);
  const float *q1 = call.floats(3), *q2 = call.floats(4);
  float* target = call.floats(5);
  for (Index i = 0; i < batch; i++)
    target[i] = reward[i] + discount[i] * (1.0f - terminated[i]) * lower(q1[i], q2[i]);
  return 0;
}

// values q1 and q2, target (B,) -> loss (), mean of q1 ()
ALWAYS_INLINE int twin_loss(const Call& call) {
  const Index batch = call.size(0);
  const float *q1 = call.floats(0), *q2 = call.floats(1), *target = call.floats(2);
  float loss = 0.0f, sum = 0.0f;
  for (Index i = 0; i < batch; i++) {
    float error1 = q1[i] - target[i], error2 = q2[i] - target[i];
    loss += 0.5f * (error1 * error1 + error2 * error2);
    sum += q1[i];
  }
  *call.floats(3) = loss / batch;
  *call.floats(4) = sum / batch;
  return 0;
}

// values q1 and q2, target (B,), gradient of the loss () -> gradients of q1 and q2 (B,)
ALWAYS_INLINE int twin_loss_gradient(const Call& call) {
  const Index batch = call.size(0);
  const float *q1 = call.floats(0), *q2 = call.floats(1), *target = call.floats(2), share = *call.floats(3) / batch;
  float *dq1 = call.floats(4), *dq2 = call.floats(5);
  for (Index i = 0; i < batch; i++) {
    dq1[i] = share * (q1[i] - target[i]);
    dq2[i] = share * (q2[i] - target[i]);
  }
  return 0;
}

// values q1 and q2 of the action, its log-probability (B,), temperature () -> loss (), mean log-probability ()
ALWAYS_INLINE int soft_policy_loss(const Call& call) {
  const Index batch = call.size(0);
  const float *q1 = call.floats(0), *q2 = call.floats(1), *log_prob = call.floats(2), alpha = *call.floats(3);
  float loss = 0.0f, sum = 0.0f;
  for (Index i = 0; i < batch; i++) {
    loss += alpha * log_prob[i] - lower(q1[i], q2[i]);
    sum += log_prob[i];
  }
  *call.floats(4) = loss / batch;
  *call.floats(5) = sum / batch;
  return 0;
}

// values q1 and q2 of the action, its log-probability (B,), temperature (), gradient of the loss ()
//   -> gradients of q1, q2 and the log-probability (B,)
ALWAYS_INLINE int soft_policy_loss_gradient(const Call& call) {
  const Index batch = call.size(0);
  const float *q1 = call.floats(0), *q2 = call.floats(1), alpha = *call.floats(3), share = *call.floats(4) / batch;
  float *dq1 = call.floats(5), *dq2 = call.floats(6), *dlog_prob = call.floats(7);
  for (Index i = 0; i < batch; i++) {
    bool first = (q1[i] < q2[i]) | (q1[i] != q1[i]);
    dq1[i] = first ? -share : 0.0f;
    dq2[i] = first ? 0.0f : -share;
    dlog_prob[i] = alpha * share;
  }
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(soft_target, minding::soft_target)
DEFINE_KERNEL(twin_target, minding::twin_target)
DEFINE_KERNEL(twin_loss, minding::twin_loss)
DEFINE_KERNEL(twin_loss_gradient, minding::twin_loss_gradient)
DEFINE_KERNEL(soft_policy_loss, minding::soft_policy_loss)
DEFINE_KERNEL(soft_policy_loss_gradient, minding::soft_policy_loss_gradient)
