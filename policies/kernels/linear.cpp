// Linear layers as kernels of a MindSpore graph: product, bias and activation in one, one layer or several, and the parts
// of the gradient.
#include <type_traits>

#include "custom.h"
#include "functions.h"
#include "gemm.h"

namespace minding {
namespace {

// An activation, and the gradient before it from the gradient after it and its result. NaN stays NaN.
struct None {
  static ALWAYS_INLINE Float8 of(Float8 x) { return x; }
  static ALWAYS_INLINE Float8 gradient(Float8 after, Float8) { return after; }
};

struct Relu {
  static ALWAYS_INLINE Float8 of(Float8 x) { return where(x < 0.0f, Float8{}, x); }
  static ALWAYS_INLINE Float8 gradient(Float8 after, Float8 result) { return where(result <= 0.0f, Float8{}, after); }
};

struct Tanh {
  static ALWAYS_INLINE Float8 of(Float8 x) { return hyperbolic_tangent(x); }
  static ALWAYS_INLINE Float8 gradient(Float8 after, Float8 result) { return after * (1.0f - result * result); }
};

// Changes the elements of x (rows, columns) in memory where `stride` elements lie between the starts of two rows.
template <class Function>
ALWAYS_INLINE void change(Index rows, Index columns, float* x, Index stride, Function function) {
  for (Index i = 0; i < rows; i++) {
    float* row = x + i * stride;
    Index j = 0;
    for (; j + LANES <= columns; j += LANES) store(row + j, function(load(row + j)));
    if (j < columns) {
      float rest[LANES] = {};
      std::memcpy(rest, row + j, (columns - j) * sizeof(float));
      store(rest, function(load(rest)));
      std::memcpy(row + j, rest, (columns - j) * sizeof(float));
    }
  }
}

// The gradient before an activation from the gradient after it and its result; `before` may be `after`.
template <class Activation>
ALWAYS_INLINE void change_before(const float* after, const float* result, Index count, float* before) {
  Index i = 0;
  for (; i + LANES <= count; i += LANES) store(before + i, Activation::gradient(load(after + i), load(result + i)));
  if (i < count) {
    float rest[2][LANES] = {};
    std::memcpy(rest[0], after + i, (count - i) * sizeof(float));
    std::memcpy(rest[1], result + i, (count - i) * sizeof(float));
    store(rest[0], Activation::gradient(load(rest[0]), load(rest[1])));
    std::memcpy(before + i, rest[0], (count - i) * sizeof(float));
  }
}

// The same in memory of its own; `after` itself if there is no activation.
template <class Activation>
ALWAYS_INLINE const float* before_activation(const float* after, const float* result, Index count) {
  static thread_local Workspace workspace;
  if (std::is_same<Activation, None>::value) return after;
  float* before = workspace.floats(count);
  change_before<Activation>(after, result, count, before);
  return before;
}

ALWAYS_INLINE void sum_rows(Index rows, Index columns, const float* x, float* sums) {
  std::memset(sums, 0, columns * sizeof(float));
  for (Index i = 0; i < rows; i++) {
    const float* row = x + i * columns;
    Index j = 0;
    for (; j + LANES <= columns; j += LANES) store(sums + j, load(sums + j) + load(row + j));
    for (; j < columns; j++) sums[j] += row[j];
  }
}

// Columns up to which scalar products are faster than tiles.
constexpr Index FEW = 4;

enum Name { NONE, RELU, TANH };

}  // namespace

// The three products that a layer needs, one function each: inlined into every kernel they take minutes to compile.

CLONED void multiply_by_transposed(Index m, Index n, Index k, const float* a, const float* b, const float* bias,
                                   float* c, int activation) {
  multiply(m, n, k, Matrix<false>{a, k}, Matrix<true>{b, k}, bias, c,
           [=](Index rows, Index columns, float* x, Index stride) __attribute__((always_inline)) {
             if (activation == RELU) change(rows, columns, x, stride, Relu::of);
             if (activation == TANH) change(rows, columns, x, stride, Tanh::of);
           });
}

// c (m, n) = a b^T + bias of few columns, as scalar products: most of a tile of sums would be thrown away.
CLONED void multiply_by_few(Index m, Index n, Index k, const float* a, const float* b, const float* bias, float* c) {
  for (Index i = 0; i < m; i++) {
    for (Index j = 0; j < n; j++) {
      const float *x = a + i * k, *y = b + j * k;
      Float8 sums[4] = {};
      Index t = 0;
      for (; t + 4 * LANES <= k; t += 4 * LANES)
        for (Index u = 0; u < 4; u++) sums[u] += load(x + t + u * LANES) * load(y + t + u * LANES);
      for (; t + LANES <= k; t += LANES) sums[0] += load(x + t) * load(y + t);
      float sum = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
      for (; t < k; t++) sum += x[t] * y[t];
      c[i * n + j] = sum + bias[j];
    }
  }
}

CLONED void multiply_plain(Index m, Index n, Index k, const float* a, const float* b, float* c) {
  multiply(m, n, k, Matrix<false>{a, k}, Matrix<false>{b, n}, nullptr, c, [](Index, Index, float*, Index) {});
}

CLONED void multiply_transposed(Index m, Index n, Index k, const float* a, const float* b, float* c) {
  multiply(m, n, k, Matrix<true>{a, m}, Matrix<false>{b, n}, nullptr, c, [](Index, Index, float*, Index) {});
}

namespace {

ALWAYS_INLINE bool is_zero(const float* x, Index count) {
  Int8 found{};
  Index i = 0;
  for (; i + LANES <= count; i += LANES) found |= load(x + i) != 0.0f;
  for (; i < count; i++)
    if (x[i] != 0.0f) return false;
  for (Index j = 0; j < LANES; j++)
    if (found[j]) return false;
  return true;
}

// c = a b, where rows of zeros of `a` are left out: the gradient of a minimum of two networks has many.
ALWAYS_INLINE void multiply_some_rows(Index m, Index n, Index k, const float* a, const float* b, float* c) {
  static thread_local Workspace workspace, numbers;
  Index* rows = reinterpret_cast<Index*>(numbers.floats(2 * m));
  Index count = 0;
  for (Index i = 0; i < m; i++)
    if (!is_zero(a + i * k, k)) rows[count++] = i;
  if (count > m * 7 / 8) return multiply_plain(m, n, k, a, b, c);
  float *taken = workspace.floats(count * (k + n)), *product = taken + count * k;
  for (Index i = 0; i < count; i++) std::memcpy(taken + i * k, a + rows[i] * k, k * sizeof(float));
  multiply_plain(count, n, k, taken, b, product);
  std::memset(c, 0, m * n * sizeof(float));
  for (Index i = 0; i < count; i++) std::memcpy(c + rows[i] * n, product + i * n, n * sizeof(float));
}

// activation(x weight^T + bias) (batch, out) for x (batch, in), weight (out, in)
ALWAYS_INLINE void forward(Index batch, Index in, Index out, const float* x, const float* weight, const float* bias,
                           float* result, Name activation) {
  if (activation == NONE && out <= FEW) multiply_by_few(batch, out, in, x, weight, bias, result);
  else multiply_by_transposed(batch, out, in, x, weight, bias, result, activation);
}

// The gradients of weight (out, in) and bias (out,) from those before the activation (batch, out) and x (batch, in)
ALWAYS_INLINE void parameter_gradients(Index batch, Index in, Index out, const float* before, const float* x,
                                       float* dweight, float* dbias) {
  if (in < out) {
    // The narrow side as the rows: less is copied into panels.
    static thread_local Workspace workspace;
    float* transposed = workspace.floats(in * out);
    multiply_transposed(in, out, batch, x, before, transposed);
    for (Index j = 0; j < out; j++)
      for (Index i = 0; i < in; i++) *dweight++ = transposed[i * out + j];
  } else {
    multiply_transposed(out, in, batch, before, x, dweight);
  }
  sum_rows(batch, out, before, dbias);
}

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
  multiply_some_rows(batch, in, out, before, call.floats(2), call.floats(3));
  return 0;
}

// gradient (B, O), result (B, O), x (B, I) -> gradients of weight (O, I) and bias (O,)
template <class Activation>
ALWAYS_INLINE int parameter_gradient(const Call& call) {
  Index batch = call.shapes[0][0], out = call.size(0) / batch, in = call.shapes[2][1];
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
    float* slope = call.floats(slopes + i - 1);
    multiply_some_rows(batch, call.shapes[weight][1], call.shapes[weight][0], call.floats(slopes + i),
                       call.floats(weight), slope);
    change_before<Activation>(slope, call.floats(i), call.size(i), slope);
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
