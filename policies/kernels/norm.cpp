// Layer normalization and the activation after it as one kernel of a MindSpore graph, and its gradient.
//
// The gradient computes the mean and standard deviation of a row again, since it reads the row anyway.
#include <cmath>

#include "layers.h"

namespace minding {
namespace {

constexpr float EPSILON = 1e-5f;

struct Moments {
  float mean, scale;  // scale = 1 / sqrt(variance + EPSILON)
};

ALWAYS_INLINE float sum_of_row(const float* x, Index count) {
  Float8 sums[2] = {};
  Index i = 0;
  for (; i + 2 * LANES <= count; i += 2 * LANES) {
    sums[0] += load(x + i);
    sums[1] += load(x + i + LANES);
  }
  for (; i < count; i += LANES) sums[0] += load_some(x + i, count - i);
  return sum_of(sums[0] + sums[1]);
}

ALWAYS_INLINE Moments moments_of(const float* x, Index count) {
  const float mean = sum_of_row(x, count) / count;
  Float8 squares[2] = {};
  Index i = 0;
  for (; i + 2 * LANES <= count; i += 2 * LANES) {
    const Float8 a = load(x + i) - mean, b = load(x + i + LANES) - mean;
    squares[0] += a * a;
    squares[1] += b * b;
  }
  for (; i + LANES <= count; i += LANES) {
    const Float8 a = load(x + i) - mean;
    squares[0] += a * a;
  }
  float rest = 0.0f;
  for (; i < count; i++) rest += (x[i] - mean) * (x[i] - mean);
  return {mean, 1.0f / std::sqrt((sum_of(squares[0] + squares[1]) + rest) / count + EPSILON)};
}

// x (B, H), weight (H,), bias (H,) -> activation((x - mean) scale weight + bias) (B, H)
template <class Activation>
ALWAYS_INLINE int norm(const Call& call) {
  const Index batch = call.shapes[0][0], size = call.shapes[0][1];
  const float *weight = call.floats(1), *bias = call.floats(2);
  for (Index i = 0; i < batch; i++) {
    const float* x = call.floats(0) + i * size;
    float* y = call.floats(3) + i * size;
    const Moments row = moments_of(x, size);
    for (Index j = 0; j < size; j += LANES) {
      const Index left = size - j;
      const Float8 normal = (load_some(x + j, left) - row.mean) * row.scale;
      store_some(y + j, Activation::of(normal * load_some(weight + j, left) + load_some(bias + j, left)), left);
    }
  }
  return 0;
}

// gradient (B, H), result (B, H), x (B, H), weight (H,) -> gradients of x (B, H), weight (H,) and bias (H,)
//
// For g, the gradient before the activation, and the normalized row n:
//   dx = scale (g weight - mean(g weight) - n mean(g weight n)),   dweight = sum of g n over rows,   dbias = sum of g
template <class Activation>
ALWAYS_INLINE int norm_gradient(const Call& call) {
  const Index batch = call.shapes[2][0], size = call.shapes[2][1];
  const float* weight = call.floats(3);
  float *dweight = call.floats(5), *dbias = call.floats(6);
  std::memset(dweight, 0, size * sizeof(float));
  std::memset(dbias, 0, size * sizeof(float));
  for (Index i = 0; i < batch; i++) {
    const float *after = call.floats(0) + i * size, *y = call.floats(1) + i * size, *x = call.floats(2) + i * size;
    float* dx = call.floats(4) + i * size;
    const Moments row = moments_of(x, size);
    Float8 sums{}, products{};
    for (Index j = 0; j < size; j += LANES) {
      const Index left = size - j;
      Float8 normal = (load_some(x + j, left) - row.mean) * row.scale;
      const Float8 before = Activation::gradient(load_some(after + j, left), load_some(y + j, left));
      store_some(dweight + j, load_some(dweight + j, left) + before * normal, left);
      store_some(dbias + j, load_some(dbias + j, left) + before, left);
      // Zero after the end of the row, because the weight is zero there.
      const Float8 weighted = before * load_some(weight + j, left);
      sums += weighted;
      products += weighted * normal;
      store_some(dx + j, weighted, left);
    }
    const float mean = sum_of(sums) / size, slope = sum_of(products) / size;
    for (Index j = 0; j < size; j += LANES) {
      const Index left = size - j;
      const Float8 normal = (load_some(x + j, left) - row.mean) * row.scale;
      store_some(dx + j, row.scale * (load_some(dx + j, left) - mean - normal * slope), left);
    }
  }
  return 0;
}

}  // namespace
}  // namespace minding

#define DEFINE_NORM(name, Activation)                            \
  DEFINE_KERNEL(norm_##name, minding::norm<minding::Activation>) \
  DEFINE_KERNEL(norm_##name##_gradient, minding::norm_gradient<minding::Activation>)

DEFINE_NORM(none, None)
DEFINE_NORM(relu, Relu)
DEFINE_NORM(tanh, Tanh)
