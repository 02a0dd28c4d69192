// Networks with two hidden layers as kernels of a MindSpore graph: hidden layers and heads in one, and the parts of the
// gradient. What a kernel takes and gives is a matrix with a row for each sample unless its shape is said.
#include "clip.h"
#include "custom.h"
#include "layers.h"

namespace minding {
namespace {

// (rows, left + right) of two matrices side by side
ALWAYS_INLINE const float* joined(Index rows, Index left, Index right, const float* a, const float* b) {
  static thread_local Workspace workspace;
  float* both = workspace.floats(rows * (left + right));
  for (Index i = 0; i < rows; i++) {
    std::memcpy(both + i * (left + right), a + i * left, left * sizeof(float));
    std::memcpy(both + i * (left + right) + left, b + i * right, right * sizeof(float));
  }
  return both;
}

// One layer of a call: `layer(x, w, y)` is y = activation(x weight^T + bias), weight the call's array w, bias the next.
ALWAYS_INLINE void layer(const Call& call, const float* x, int weight, int result, Name activation) {
  const int64_t* shape = call.shapes[weight];
  forward(call.shapes[0][0], shape[1], shape[0], x, call.floats(weight), call.floats(weight + 1), call.floats(result),
          activation);
}

// The gradients of the layer's weight, the call's array `dweight`, and bias, the next
ALWAYS_INLINE void layer_gradients(const Call& call, const float* x, const float* before, int dweight) {
  const int64_t* shape = call.shapes[dweight];
  parameter_gradients(call.shapes[0][0], shape[1], shape[0], before, x, call.floats(dweight), call.floats(dweight + 1));
}

// features, action, then weight and bias of the hidden layers and of the value
//   -> results of the hidden layers, value (B,)
template <Name activation>
ALWAYS_INLINE int action_value(const Call& call) {
  const Index batch = call.shapes[0][0], features = call.shapes[0][1], action = call.shapes[1][1];
  layer(call, joined(batch, features, action, call.floats(0), call.floats(1)), 2, 8, activation);
  layer(call, call.floats(8), 4, 9, activation);
  layer(call, call.floats(9), 6, 10, NONE);
  return 0;
}

// gradient of the value (B,), results of the hidden layers, weights of the second one and of the value
//   -> gradients before the activations of the hidden layers
template <class Activation>
ALWAYS_INLINE int action_value_slopes(const Call& call) {
  const Index batch = call.shapes[0][0], first = call.shapes[3][1], second = call.shapes[3][0];
  gradient_before_heads<Activation, 1>(batch, second, 1, {call.floats(0)}, {call.floats(4)}, call.floats(2),
                                       call.floats(6));
  gradient_before<Activation>(batch, first, second, call.floats(6), call.floats(3), call.floats(1), call.floats(5));
  return 0;
}

// features, action, results of the hidden layers, gradients before their activations, gradient of the value (B,)
//   -> gradients of weight and bias of the hidden layers and of the value
ALWAYS_INLINE int action_value_parameters(const Call& call) {
  const Index batch = call.shapes[0][0], features = call.shapes[0][1], action = call.shapes[1][1];
  const float* x = joined(batch, features, action, call.floats(0), call.floats(1));
  layer_gradients(call, x, call.floats(4), 7);
  layer_gradients(call, call.floats(2), call.floats(5), 9);
  layer_gradients(call, call.floats(3), call.floats(6), 11);
  return 0;
}

// gradient before the first activation, weight of the first layer, action -> gradient of the features
ALWAYS_INLINE int action_value_features_gradient(const Call& call) {
  const Index hidden = call.shapes[1][0], in = call.shapes[1][1], action = call.shapes[2][1];
  multiply_some_rows(call.shapes[0][0], in - action, hidden, call.floats(0), call.floats(1), in, call.floats(3));
  return 0;
}

// gradient before the first activation, weight of the first layer, action -> gradient of the action
ALWAYS_INLINE int action_value_action_gradient(const Call& call) {
  const Index hidden = call.shapes[1][0], in = call.shapes[1][1], action = call.shapes[2][1];
  const float* weight = call.floats(1) + in - action;
  multiply_some_rows(call.shapes[0][0], action, hidden, call.floats(0), weight, in, call.floats(3));
  return 0;
}

// features, then weight and bias of the hidden layers, of mean and of log deviation, bounds (2,) of the last
//   -> results of the hidden layers, mean, log deviation before and after the bounds
template <Name activation>
ALWAYS_INLINE int squashed_actor(const Call& call) {
  layer(call, call.floats(0), 1, 10, activation);
  layer(call, call.floats(10), 3, 11, activation);
  layer(call, call.floats(11), 5, 12, NONE);
  layer(call, call.floats(11), 7, 13, NONE);
  clip_numbers(call.size(13), call.floats(13), call.floats(9), call.floats(14));
  return 0;
}

// gradients of mean and log deviation, the latter before its bounds, bounds (2,), results of the hidden layers, weights
// of the second one, of mean and of log deviation
//   -> gradients before the activations of the hidden layers, and before the bounds
template <class Activation>
ALWAYS_INLINE int squashed_actor_slopes(const Call& call) {
  const Index batch = call.shapes[0][0], actions = call.shapes[0][1];
  const Index first = call.shapes[6][1], second = call.shapes[6][0];
  float *slope = call.floats(10), *dlog_std = call.floats(11);
  clip_numbers_gradient(batch * actions, call.floats(1), call.floats(2), call.floats(3), dlog_std);
  gradient_before_heads<Activation, 2>(batch, second, actions, {call.floats(0), dlog_std},
                                       {call.floats(7), call.floats(8)}, call.floats(5), slope);
  gradient_before<Activation>(batch, first, second, slope, call.floats(6), call.floats(4), call.floats(9));
  return 0;
}

// features, results of the hidden layers, gradients before their activations, of mean and of log deviation before the
// bounds -> gradients of weight and bias of the hidden layers, of mean and of log deviation
ALWAYS_INLINE int squashed_actor_parameters(const Call& call) {
  layer_gradients(call, call.floats(0), call.floats(3), 7);
  layer_gradients(call, call.floats(1), call.floats(4), 9);
  layer_gradients(call, call.floats(2), call.floats(5), 11);
  layer_gradients(call, call.floats(2), call.floats(6), 13);
  return 0;
}

}  // namespace
}  // namespace minding

#define DEFINE_NETWORKS(name, NAME, Activation)                                                      \
  DEFINE_KERNEL(action_value_##name, minding::action_value<minding::NAME>)                           \
  DEFINE_KERNEL(action_value_##name##_slopes, minding::action_value_slopes<minding::Activation>)     \
  DEFINE_KERNEL(squashed_actor_##name, minding::squashed_actor<minding::NAME>)                       \
  DEFINE_KERNEL(squashed_actor_##name##_slopes, minding::squashed_actor_slopes<minding::Activation>)

DEFINE_NETWORKS(relu, RELU, Relu)
DEFINE_NETWORKS(tanh, TANH, Tanh)
DEFINE_KERNEL(action_value_parameters, minding::action_value_parameters)
DEFINE_KERNEL(action_value_features_gradient, minding::action_value_features_gradient)
DEFINE_KERNEL(action_value_action_gradient, minding::action_value_action_gradient)
DEFINE_KERNEL(squashed_actor_parameters, minding::squashed_actor_parameters)
