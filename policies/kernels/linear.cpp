// Linear layers as kernels of a MindSpore graph: one for product, bias and activation, and two for the gradient.
#include "layers.h"

namespace minding {
namespace {

// x (B, I), weight (O, I), bias (O,) -> activation(x weight^T + bias) (B, O), or (B,) if O is 1
template <Name activation>
ALWAYS_INLINE int linear(const Call& call) {
  Index batch = call.shapes[0][0], in = call.shapes[0][1], out = call.shapes[1][0];
  forward(batch, in, out, call.floats(0), call.floats(1), call.floats(2), call.floats(3), activation);
  return 0;
}

// gradient (B, O), result (B, O), weight (O, I) -> gradient of x (B, I)
template <class Activation>
ALWAYS_INLINE int input_gradient(const Call& call) {
  Index batch = call.shapes[0][0], out = call.shapes[2][0], in = call.shapes[2][1];
  const float* before = before_activation<Activation>(call.floats(0), call.floats(1), batch * out);
  multiply_some_rows(batch, in, out, before, call.floats(2), in, call.floats(3));
  return 0;
}

// gradient (B, O), result (B, O), x (B, I) -> gradients of weight (O, I) and bias (O,)
template <class Activation>
ALWAYS_INLINE int parameter_gradient(const Call& call) {
  Index batch = call.shapes[0][0], out = call.shapes[3][0], in = call.shapes[2][1];
  const float* before = before_activation<Activation>(call.floats(0), call.floats(1), batch * out);
  parameter_gradients(batch, in, out, before, call.floats(2), call.floats(3), call.floats(4));
  return 0;
}

// weight (out, in), bias (out,)
struct Layer {
  const float *weight, *bias;
  Index in, out, activation;
};

CLONED void layer_of(const Layer& layer, Index batch, const float* x, float* result) {
  forward(batch, layer.in, layer.out, x, layer.weight, layer.bias, result, static_cast<Name>(layer.activation));
}

}  // namespace
}  // namespace minding

#pragma GCC visibility push(default)
// Layers one after another, from x (batch, in) to the result of the last one; see `library.Layers`.
extern "C" void layers(const minding::Layer* layer, int64_t count, int64_t batch, const float* x, float* result) {
  static thread_local minding::Workspace workspaces[2];
  for (minding::Index k = 0; k < count; k++) {
    float* to = k + 1 == count ? result : workspaces[k % 2].floats(batch * layer[k].out);
    minding::layer_of(layer[k], batch, x, to);
    x = to;
  }
}
#pragma GCC visibility pop

#define DEFINE_LINEAR(name, NAME, Activation)                                                       \
  DEFINE_KERNEL(linear_##name, minding::linear<minding::NAME>)                                       \
  DEFINE_KERNEL(linear_##name##_input_gradient, minding::input_gradient<minding::Activation>)         \
  DEFINE_KERNEL(linear_##name##_parameter_gradient, minding::parameter_gradient<minding::Activation>)

DEFINE_LINEAR(none, NONE, None)
DEFINE_LINEAR(scalar, NONE, None)
DEFINE_LINEAR(relu, RELU, Relu)
DEFINE_LINEAR(tanh, TANH, Tanh)
