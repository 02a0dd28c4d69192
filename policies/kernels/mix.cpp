// The monotonic mixer and its gradient; see `networks.team_networks` for the formula.
#include "custom.h"
#include "functions.h"

namespace minding {
namespace {

// The sign of x: 1, -1, or 0 for 0; NaN stays NaN.
ALWAYS_INLINE Float8 sign(Float8 x) {
  const Float8 zero = Float8{}, one = zero + 1.0f;
  return where(x > 0.0f, one, where(x < 0.0f, -one, x));
}

// e^x - 1 for x below 0, else x.
ALWAYS_INLINE Float8 elu(Float8 x) {
  return where(x > 0.0f, x, exponential(bounded(x, -87.0f, 0.0f)) - 1.0f);
}

// The inputs of the hidden unit j and the next ones, from values q of M agents, weights (M, E) and bias (E,).
ALWAYS_INLINE Float8 mixed(Index agents, Index size, const float* q, const float* weight, const float* bias, Index j) {
  const Index rest = size - j;
  Float8 sum = load_some(bias + j, rest);
  for (Index m = 0; m < agents; m++) sum += q[m] * magnitude(load_some(weight + m * size + j, rest));
  return sum;
}

// q (B, M), first weights (B, M E) and bias (B, E), second weights (B, E) and bias (B,) -> value of the team (B,)
ALWAYS_INLINE int mix(const Call& call) {
  const Index batch = call.shapes[0][0], agents = call.shapes[0][1], size = call.shapes[2][1];
  for (Index i = 0; i < batch; i++) {
    const float *q = call.floats(0) + i * agents, *weight = call.floats(1) + i * agents * size;
    const float *bias = call.floats(2) + i * size, *second = call.floats(3) + i * size;
    Float8 sum = Float8{};
    for (Index j = 0; j < size; j += LANES)
      sum += elu(mixed(agents, size, q, weight, bias, j)) * magnitude(load_some(second + j, size - j));
    call.floats(5)[i] = sum_of(sum) + call.floats(4)[i];
  }
  return 0;
}

// gradient of the value (B,), q, first weights and bias, second weights as above
//   -> gradients of q (B, M), of the first weights (B, M E) and bias (B, E), of the second weights (B, E)
ALWAYS_INLINE int mix_gradient(const Call& call) {
  const Index batch = call.shapes[1][0], agents = call.shapes[1][1], size = call.shapes[3][1];
  for (Index i = 0; i < batch; i++) {
    const float dout = call.floats(0)[i];
    const float *q = call.floats(1) + i * agents, *weight = call.floats(2) + i * agents * size;
    const float *bias = call.floats(3) + i * size, *second = call.floats(4) + i * size;
    float *dq = call.floats(5) + i * agents, *dweight = call.floats(6) + i * agents * size;
    float *dbias = call.floats(7) + i * size, *dsecond = call.floats(8) + i * size;
    for (Index m = 0; m < agents; m++) dq[m] = 0.0f;
    for (Index j = 0; j < size; j += LANES) {
      const Index rest = size - j;
      const Float8 x = mixed(agents, size, q, weight, bias, j), unit = elu(x), w = load_some(second + j, rest);
      store_some(dsecond + j, dout * unit * sign(w), rest);
      const Float8 dx = dout * magnitude(w) * where(x > 0.0f, Float8{} + 1.0f, unit + 1.0f);
      store_some(dbias + j, dx, rest);
      for (Index m = 0; m < agents; m++) {
        const Float8 v = load_some(weight + m * size + j, rest);
        store_some(dweight + m * size + j, dx * q[m] * sign(v), rest);
        dq[m] += sum_of(dx * magnitude(v));
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(mix, minding::mix)
DEFINE_KERNEL(mix_gradient, minding::mix_gradient)
