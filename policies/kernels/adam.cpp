// A step of Adam over all parameters of an optimizer, in place, with a bound on the gradient's norm.
#include <cmath>
#include <vector>

#include "custom.h"

namespace minding {
namespace {

// Alignment, in floats, of tensors in the blocks of `learning.optim`: a cache line.
constexpr Index ALIGNMENT = 16;
enum { PARAMETERS, FIRST_MOMENTS, SECOND_MOMENTS, POWER_1, POWER_2, RATE, SETTINGS, GRADIENTS };
constexpr int PART = 5;  // place of the first gradient's part in the settings

ALWAYS_INLINE double sum_of_squares(const float* x, Index count) {
  Float8 sums[4] = {};
  Index i = 0;
  for (; i + 4 * LANES <= count; i += 4 * LANES)
    for (int j = 0; j < 4; j++) {
      Float8 y = load(x + i + j * LANES);
      sums[j] += y * y;
    }
  double sum = 0.0;
  for (; i < count; i++) sum += static_cast<double>(x[i]) * x[i];
  return sum + sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// the three blocks, the current powers of beta1 and beta2, the learning rate, the settings (beta1, beta2, epsilon,
// bound of the norm or 0, weight decay in units of the learning rate, then the part of each gradient), the gradients
//   -> norm of the gradients before scaling; 0 without a bound. Each part is scaled to the bound by itself.
ALWAYS_INLINE int adam(const Call& call) {
  const int last = call.count - 1;
  const float* settings = call.floats(SETTINGS);
  const float beta1 = settings[0], beta2 = settings[1], bound = settings[3];
  const float power1 = *call.floats(POWER_1) *= beta1, power2 = *call.floats(POWER_2) *= beta2;
  const float correction = std::sqrt(1.0f - power2);
  const float rate = *call.floats(RATE) * correction / (1.0f - power1), floor = settings[2] * correction;
  const float kept = 1.0f - *call.floats(RATE) * settings[4];
  const float* parts = settings + PART - GRADIENTS;
  std::vector<double> sums(last - GRADIENTS, 0.0);
  double sum = 0.0;
  if (bound > 0.0f)
    for (int i = GRADIENTS; i < last; i++) {
      sums[static_cast<int>(parts[i])] += sum_of_squares(call.floats(i), call.size(i));
    }
  for (double part : sums) sum += part;
  *call.floats(last) = static_cast<float>(std::sqrt(sum));
  float *p = call.floats(PARAMETERS), *m = call.floats(FIRST_MOMENTS), *v = call.floats(SECOND_MOMENTS);
  for (int i = GRADIENTS; i < last; i++) {
    const Index count = call.size(i);
    const float* gradients = call.floats(i);
    const float wanted = bound / (static_cast<float>(std::sqrt(sums[static_cast<int>(parts[i])])) + 1e-6f);
    const float scale = bound > 0.0f && wanted < 1.0f ? wanted : 1.0f;
    for (Index j = 0; j < count; j += LANES) {
      Float8 g{};
      if (j + LANES <= count) g = load(gradients + j);
      else std::memcpy(&g, gradients + j, (count - j) * sizeof(float));
      g *= scale;
      Float8 m1 = load(m + j) * beta1 + g * (1.0f - beta1), v1 = load(v + j) * beta2 + g * g * (1.0f - beta2);
      store(m + j, m1);
      store(v + j, v1);
      store(p + j, load(p + j) * kept - rate * m1 / (square_root(v1) + floor));
    }
    const Index padded = round_up(count, ALIGNMENT);
    p += padded;
    m += padded;
    v += padded;
  }
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(adam, minding::adam)
