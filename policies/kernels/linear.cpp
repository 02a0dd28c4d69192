// Linear layers as kernels of a MindSpore graph: product, bias and activation in one, one layer or several, and the
// parts of the gradient.
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

// x, then weight and bias of each layer -> the result of each layer
template <Name activation>
ALWAYS_INLINE int mlp(const Call& call) {
  const int layers = (call.count - 1) / 3, results = 1 + 2 * layers;
  const Index batch = call.shapes[0][0];
  const float* x = call.floats(0);
  for (int i = 0; i < layers; i++) {
    const int weight = 1 + 2 * i;
    forward(batch, call.shapes[weight][1], call.shapes[weight][0], x, call.floats(weight), call.floats(weight + 1),
            call.floats(results + i), activation);
    x = call.floats(results + i);
  }
  return 0;
}

// gradient of the last result, result of each layer, weights of all but the first
//   -> the gradients before the activations of each layer
template <class Activation>
ALWAYS_INLINE int mlp_slopes(const Call& call) {
  const int layers = call.count / 3, weights = 1 + layers, slopes = 2 * layers;
  const Index batch = call.shapes[0][0];
  change_before<Activation>(call.floats(0), call.floats(layers), call.size(layers), call.floats(slopes + layers - 1));
  for (int i = layers - 1; i > 0; i--) {
    const int weight = weights + i - 1;
    gradient_before<Activation>(batch, call.shapes[weight][1], call.shapes[weight][0], call.floats(slopes + i),
                                call.floats(weight), call.floats(i), call.floats(slopes + i - 1));
  }
  return 0;
}

// the input of each layer, the gradients before their activations -> the gradients of weight and bias of each layer
ALWAYS_INLINE int mlp_parameters(const Call& call) {
  const int layers = call.count / 4;
  const Index batch = call.shapes[0][0];
  for (int i = 0; i < layers; i++) {
    const int gradients = 2 * layers + 2 * i;
    parameter_gradients(batch, call.shapes[i][1], call.shapes[layers + i][1], call.floats(layers + i), call.floats(i),
                        call.floats(gradients), call.floats(gradients + 1));
  }
  return 0;
}

}  // namespace
}  // namespace minding

#define DEFINE_LINEAR(name, NAME, Activation)                                                       \
  DEFINE_KERNEL(linear_##name, minding::linear<minding::NAME>)                                       \
  DEFINE_KERNEL(linear_##name##_input_gradient, minding::input_gradient<minding::Activation>)         \
  DEFINE_KERNEL(linear_##name##_parameter_gradient, minding::parameter_gradient<minding::Activation>)

DEFINE_LINEAR(none, NONE, None)
DEFINE_LINEAR(scalar, NONE, None)
DEFINE_LINEAR(relu, RELU, Relu)
DEFINE_LINEAR(tanh, TANH, Tanh)

#define DEFINE_MLP(name, NAME, Activation)                   \
  DEFINE_KERNEL(mlp_##name, minding::mlp<minding::NAME>)      \
  DEFINE_KERNEL(mlp_##name##_slopes, minding::mlp_slopes<minding::Activation>)

DEFINE_MLP(relu, RELU, Relu)
DEFINE_MLP(tanh, TANH, Tanh)
DEFINE_KERNEL(mlp_parameters, minding::mlp_parameters)
