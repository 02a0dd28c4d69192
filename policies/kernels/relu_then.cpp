// A ReLU layer and the linear layer after it as one kernel of a MindSpore graph.
//
// If the second layer has one output, the gradient before the ReLU is the gradient of this output times its weights,
// where the ReLU was positive: diag(before) mask diag(weights). Large products with such a matrix take a fraction of
// the usual time, see `multiply_mask`.
#include "layers.h"
#include "sparse.h"

namespace minding {
namespace {

// x (B, I), weight (H, I), bias (H,), weight (O, H) and bias (O,) of the second layer
//   -> result of the second layer (B, O), or (B,) if O is 1, and result of the first layer (B, H)
template <Name activation>
ALWAYS_INLINE int relu_then(const Call& call) {
  const Index batch = call.shapes[0][0], in = call.shapes[0][1], hidden = call.shapes[1][0], out = call.shapes[3][0];
  float *result = call.floats(5), *between = call.floats(6);
  forward(batch, in, hidden, call.floats(0), call.floats(1), call.floats(2), between, RELU);
  forward(batch, hidden, out, between, call.floats(3), call.floats(4), result, activation);
  return 0;
}

// The gradient before the ReLU (B, H), from the gradient before the second activation (B, O).
ALWAYS_INLINE const float* before_relu(Index batch, Index hidden, Index out, const float* before, const float* between,
                                       const float* weight) {
  static thread_local Workspace workspace;
  float* first = workspace.floats(batch * hidden);
  multiply_some_rows(batch, hidden, out, before, weight, hidden, first);
  change_before<Relu>(first, between, batch * hidden, first);
  return first;
}

ALWAYS_INLINE uint8_t* bytes_of_mask(Index count) {
  static thread_local Workspace workspace;
  return reinterpret_cast<uint8_t*>(workspace.floats((count + 3) / 4));
}

// gradient and result (B, O) or (B,), result of the first layer (B, H), weight (H, I), weight of the second layer
// (O, H) -> gradient of x (B, I)
template <class Activation>
ALWAYS_INLINE int input_gradient(const Call& call) {
  const Index batch = call.shapes[2][0], hidden = call.shapes[2][1], in = call.shapes[3][1], out = call.shapes[4][0];
  const float* before = before_activation<Activation>(call.floats(0), call.floats(1), batch * out);
  const float *between = call.floats(2), *weight = call.floats(3), *second = call.floats(4);
  if (out == 1 && batch * hidden * in >= LARGE && is_finite(weight, hidden, in, in) && is_finite(second, 1, hidden, hidden)) {
    const Mask mask = mask_of(batch, hidden, between, bytes_of_mask(Mask::size(batch, hidden)));
    multiply_mask(mask, in, before, second, weight, call.floats(5));
  } else {
    const float* first = before_relu(batch, hidden, out, before, between, second);
    multiply_some_rows(batch, in, hidden, first, weight, in, call.floats(5));
  }
  return 0;
}

// For x (B, H), numbers `before` (B,) and `weight` (H,): sums (H,) of the rows of diag(before) x, and sums (H,) of the
// rows of diag(before) mask diag(weight).
ALWAYS_INLINE void sum_products(Index batch, Index hidden, const float* before, const float* x, const float* weight,
                                float* sums, float* chosen) {
  constexpr Index WIDTH = 4;
  for (Index j = 0; j < hidden; j += WIDTH * LANES) {
    Float8 all[WIDTH] = {}, some[WIDTH] = {};
    for (Index i = 0; i < batch; i++) {
#pragma GCC unroll 4
      for (Index w = 0; w < WIDTH; w++) {
        const Index column = j + w * LANES;
        if (column >= hidden) break;
        const Float8 row = load_some(x + i * hidden + column, hidden - column);
        all[w] += before[i] * row;
        some[w] += where(row <= 0.0f, Float8{}, Float8{} + before[i]);
      }
    }
    for (Index w = 0; w < WIDTH && j + w * LANES < hidden; w++) {
      const Index column = j + w * LANES;
      store_some(sums + column, all[w], hidden - column);
      store_some(chosen + column, some[w] * load_some(weight + column, hidden - column), hidden - column);
    }
  }
}

// gradient and result (B, O) or (B,), result of the first layer (B, H), x (B, I), weight of the second layer (O, H)
//   -> gradients of weight (H, I) and bias (H,), and of the second layer's weight (O, H) and bias (O,)
template <class Activation>
ALWAYS_INLINE int parameter_gradient(const Call& call) {
  const Index batch = call.shapes[2][0], hidden = call.shapes[2][1], in = call.shapes[3][1], out = call.shapes[4][0];
  const float* before = before_activation<Activation>(call.floats(0), call.floats(1), batch * out);
  const float *between = call.floats(2), *x = call.floats(3), *second = call.floats(4);
  float *dweight = call.floats(5), *dbias = call.floats(6), *dsecond = call.floats(7), *dsecond_bias = call.floats(8);
  if (out == 1 && batch * hidden * in >= LARGE && is_finite(x, batch, in, in) && is_finite(before, 1, batch, batch)) {
    const Mask mask = mask_of_transposed(batch, hidden, between, bytes_of_mask(Mask::size(hidden, batch)));
    multiply_mask(mask, in, second, before, x, dweight);
    sum_products(batch, hidden, before, between, second, dsecond, dbias);
    sum_rows(batch, 1, before, dsecond_bias);
  } else {
    parameter_gradients(batch, hidden, out, before, between, dsecond, dsecond_bias);
    const float* first = before_relu(batch, hidden, out, before, between, second);
    parameter_gradients(batch, in, hidden, first, x, dweight, dbias);
  }
  return 0;
}

}  // namespace
}  // namespace minding

#define DEFINE_RELU_THEN(name, NAME, Activation)                                                           \
  DEFINE_KERNEL(relu_then_##name, minding::relu_then<minding::NAME>)                                        \
  DEFINE_KERNEL(relu_then_##name##_input_gradient, minding::input_gradient<minding::Activation>)             \
  DEFINE_KERNEL(relu_then_##name##_parameter_gradient, minding::parameter_gradient<minding::Activation>)

DEFINE_RELU_THEN(none, NONE, None)
DEFINE_RELU_THEN(scalar, NONE, None)
DEFINE_RELU_THEN(tanh, TANH, Tanh)
