// Log-probabilities and entropy of a diagonal normal distribution whose standard deviation does not depend on the row,
// as in `ops.distributions`, and their gradient.
#include <cmath>

#include "custom.h"

namespace minding {
namespace {

const float HALF_LOG_2PI = 0.91893853320f;

// 1 / standard deviation, (A,)
ALWAYS_INLINE const float* precisions(Workspace& workspace, Index size, const float* log_std) {
  float* inverse = workspace.floats(size);
  for (Index j = 0; j < size; j++) inverse[j] = std::exp(-log_std[j]);
  return inverse;
}

// mean (B, A), log standard deviation (A,), actions (B, ...) -> log-probability (B,), entropy ()
ALWAYS_INLINE int normal(const Call& call) {
  static thread_local Workspace workspace;
  const Index batch = call.shapes[0][0], size = call.size(1);
  const float *mean = call.floats(0), *log_std = call.floats(1), *action = call.floats(2);
  const float* inverse = precisions(workspace, size, log_std);
  float sum_of_logs = 0.0f;
  for (Index j = 0; j < size; j++) sum_of_logs += log_std[j];
  for (Index i = 0; i < batch; i++) {
    float squares = 0.0f;
    for (Index j = 0; j < size; j++) {
      const float z = (action[i * size + j] - mean[i * size + j]) * inverse[j];
      squares += z * z;
    }
    call.floats(3)[i] = -0.5f * squares - sum_of_logs - HALF_LOG_2PI * size;
  }
  *call.floats(4) = sum_of_logs + (0.5f + HALF_LOG_2PI) * size;
  return 0;
}

// mean (B, A), log standard deviation (A,), actions (B, ...), gradients of the log-probability (B,) and the entropy ()
//   -> gradients of mean (B, A) and log standard deviation (A,)
ALWAYS_INLINE int normal_gradient(const Call& call) {
  static thread_local Workspace workspace;
  const Index batch = call.shapes[0][0], size = call.size(1);
  const float *mean = call.floats(0), *action = call.floats(2), *dlog_prob = call.floats(3);
  const float* inverse = precisions(workspace, size, call.floats(1));
  float* dmean = call.floats(5);
  for (Index j = 0; j < size; j++) {
    double sum = *call.floats(4);
    for (Index i = 0; i < batch; i++) {
      const float z = (action[i * size + j] - mean[i * size + j]) * inverse[j];
      dmean[i * size + j] = dlog_prob[i] * z * inverse[j];
      sum += dlog_prob[i] * (z * z - 1.0f);
    }
    call.floats(6)[j] = static_cast<float>(sum);
  }
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(normal, minding::normal)
DEFINE_KERNEL(normal_gradient, minding::normal_gradient)
