// The forward and backward computations of a linear layer, for the kernels of layers.
#pragma once

#include <cstring>
#include <type_traits>

#include "custom.h"
#include "functions.h"

namespace minding {

// Activations: the result, and the gradient before it from the gradient after it and the result. NaN stays NaN.
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

// `change_before` into separate memory; returns `after` itself if there is no activation.
template <class Activation>
ALWAYS_INLINE const float* before_activation(const float* after, const float* result, Index count) {
  static thread_local Workspace workspace;
  if (std::is_same<Activation, None>::value) return after;
  float* before = workspace.floats(count);
  change_before<Activation>(after, result, count, before);
  return before;
}

// Adds the rows of x (rows, columns) to `sums`; the sums of some columns at a time stay in registers.
ALWAYS_INLINE void sum_more_rows(Index rows, Index columns, const float* x, float* sums) {
  constexpr Index SOME = 4;
  Index j = 0;
  for (; j + SOME * LANES <= columns; j += SOME * LANES) {
    Float8 sum[SOME];
    for (Index u = 0; u < SOME; u++) sum[u] = load(sums + j + u * LANES);
    for (Index i = 0; i < rows; i++)
      for (Index u = 0; u < SOME; u++) sum[u] += load(x + i * columns + j + u * LANES);
    for (Index u = 0; u < SOME; u++) store(sums + j + u * LANES, sum[u]);
  }
  for (; j + LANES <= columns; j += LANES) {
    Float8 sum = load(sums + j);
    for (Index i = 0; i < rows; i++) sum += load(x + i * columns + j);
    store(sums + j, sum);
  }
  for (; j < columns; j++)
    for (Index i = 0; i < rows; i++) sums[j] += x[i * columns + j];
}

ALWAYS_INLINE void sum_rows(Index rows, Index columns, const float* x, float* sums) {
  std::memset(sums, 0, columns * sizeof(float));
  sum_more_rows(rows, columns, x, sums);
}

// Number of multiplications from which preparations pay off: dividing a product, passing it to oneDNN, or removing
// zeros. This number takes twenty microseconds of one core.
constexpr Index LARGE = 1 << 20;
// Columns up to which scalar products are faster than tiles.
constexpr Index FEW = 4;

enum Name { NONE, RELU, TANH };

// c (m, n) = activation(a b^T + bias) for a (m, k), b (n, k)
void multiply_by_transposed(Index m, Index n, Index k, const float* a, const float* b, const float* bias, float* c,
                            int activation);
// c (m, n) = a b^T + bias for few columns
void multiply_by_few(Index m, Index n, Index k, const float* a, const float* b, const float* bias, float* c);
// c (m, n) = a b for a (m, k), b (k, n)
void multiply_plain(Index m, Index n, Index k, const float* a, const float* b, Index b_stride, float* c);
// c (m, n) = a^T b for a (k, m), b (k, n)
void multiply_transposed(Index m, Index n, Index k, const float* a, const float* b, float* c);

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

// Whether x (rows, columns) holds neither NaN nor infinity; `stride` elements lie between the starts of two rows.
ALWAYS_INLINE bool is_finite(const float* x, Index rows, Index columns, Index stride) {
  // Zero times a number is NaN if the number is not finite, and a sum with NaN is NaN.
  Float8 sums[4] = {};
  float rest = 0.0f;
  for (Index i = 0; i < rows; i++) {
    const float* row = x + i * stride;
    Index j = 0;
    for (; j + 4 * LANES <= columns; j += 4 * LANES)
      for (Index u = 0; u < 4; u++) sums[u] += 0.0f * load(row + j + u * LANES);
    for (; j + LANES <= columns; j += LANES) sums[0] += 0.0f * load(row + j);
    for (; j < columns; j++) rest += 0.0f * row[j];
  }
  return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest == 0.0f;
}

// c (m, n) = a (m, k) b (k, n), leaving out rows of zeros in `a`, of which the gradient of a minimum of two networks
// has many. `b_stride` elements lie between the starts of two rows of b. NaN and infinity in b are not lost.
ALWAYS_INLINE void multiply_some_rows(Index m, Index n, Index k, const float* a, const float* b, Index b_stride,
                                      float* c) {
  static thread_local Workspace workspace, numbers;
  Index* rows = reinterpret_cast<Index*>(numbers.floats(2 * m));
  Index count = 0;
  for (Index i = 0; i < m; i++)
    if (!is_zero(a + i * k, k)) rows[count++] = i;
  if (count > m * 7 / 8 || !is_finite(b, k, n, b_stride)) return multiply_plain(m, n, k, a, b, b_stride, c);
  float *taken = workspace.floats(count * (k + n)), *product = taken + count * k;
  for (Index i = 0; i < count; i++) std::memcpy(taken + i * k, a + rows[i] * k, k * sizeof(float));
  multiply_plain(count, n, k, taken, b, b_stride, product);
  std::memset(c, 0, m * n * sizeof(float));
  for (Index i = 0; i < count; i++) std::memcpy(c + rows[i] * n, product + i * n, n * sizeof(float));
}

// activation(x weight^T + bias) (batch, out) for x (batch, in), weight (out, in)
ALWAYS_INLINE void forward(Index batch, Index in, Index out, const float* x, const float* weight, const float* bias,
                           float* result, Name activation) {
  if (activation == NONE && out <= FEW) multiply_by_few(batch, out, in, x, weight, bias, result);
  else multiply_by_transposed(batch, out, in, x, weight, bias, result, activation);
}

// The gradients of weight (out, in) and bias (out,), from the gradient before the activation (batch, out) and
// x (batch, in)
ALWAYS_INLINE void parameter_gradients(Index batch, Index in, Index out, const float* before, const float* x,
                                       float* dweight, float* dbias) {
  if (batch == 0) {
    std::memset(dweight, 0, out * in * sizeof(float));
  } else if (in < out) {
    // The narrow side becomes the rows, so that less is copied into panels.
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

}  // namespace minding
