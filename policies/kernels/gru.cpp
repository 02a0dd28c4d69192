// A gated recurrent unit over sequences as kernels of a MindSpore graph: one kernel for all steps, and one for the part
// of the gradient that passes from step to step. See `GRU` in networks/recurrent.py for the formula.
//
// T steps of B sequences are T B rows, ordered by time; a state has S numbers.
#include "layers.h"

namespace minding {
namespace {

// States before a step: zeros where an episode has begun, else the states after the previous step
ALWAYS_INLINE void begin_step(Index batch, Index size, const float* begun, const float* states, float* before) {
  for (Index i = 0; i < batch; i++) {
    if (begun[i] != 0.0f) std::memset(before + i * size, 0, size * sizeof(float));
    else std::memcpy(before + i * size, states + i * size, size * sizeof(float));
  }
}

// W x + b (T B, 3 S), whether an episode begins (T B,), first states (B, S), U (3 S, S), c (3 S,)
//   -> states after each row and before it, (T B, S) each; the gates r, z, n and U_n h + c_n (T B, 4 S)
ALWAYS_INLINE int gru(const Call& call) {
  static thread_local Workspace workspace;
  const Index total = call.shapes[0][0], batch = call.shapes[2][0], size = call.shapes[2][1];
  float* kept = workspace.floats(batch * 3 * size);
  const float* states = call.floats(2);
  for (Index first = 0; first < total; first += batch) {
    float *after = call.floats(5) + first * size, *before = call.floats(6) + first * size;
    begin_step(batch, size, call.floats(1) + first, states, before);
    multiply_by_transposed(batch, 3 * size, size, before, call.floats(3), call.floats(4), kept, NONE);
    for (Index i = 0; i < batch; i++) {
      const float *given = call.floats(0) + (first + i) * 3 * size, *own = kept + i * 3 * size;
      float* gates = call.floats(7) + (first + i) * 4 * size;
      for (Index j = 0; j < size; j += LANES) {
        const Index count = size - j;
        const Float8 h = load_some(before + i * size + j, count), u = load_some(own + 2 * size + j, count);
        const Float8 r = sigmoid(load_some(given + j, count) + load_some(own + j, count));
        const Float8 z = sigmoid(load_some(given + size + j, count) + load_some(own + size + j, count));
        const Float8 n = hyperbolic_tangent(load_some(given + 2 * size + j, count) + r * u);
        store_some(after + i * size + j, n + z * (h - n), count);
        store_some(gates + j, r, count);
        store_some(gates + size + j, z, count);
        store_some(gates + 2 * size + j, n, count);
        store_some(gates + 3 * size + j, u, count);
      }
    }
    states = after;
  }
  return 0;
}

// gradient of the states after each row (T B, S), states before each row (T B, S), gates (T B, 4 S), whether an episode
// begins (T B,), first states (B, S), U (3 S, S)
//   -> gradients of W x + b and of U h + c, (T B, 3 S) each, and of the first states (B, S)
ALWAYS_INLINE int gru_slopes(const Call& call) {
  const Index total = call.shapes[0][0], batch = call.shapes[4][0], size = call.shapes[4][1];
  // The gradient of the states after the current step, from the later steps.
  float* carried = call.floats(8);
  std::memset(carried, 0, batch * size * sizeof(float));
  static thread_local Workspace workspace;
  float* direct = workspace.floats(batch * size);
  for (Index first = total - batch; first >= 0 && batch > 0; first -= batch) {
    for (Index i = 0; i < batch; i++) {
      const Index row = first + i;
      const float *after = call.floats(0) + row * size, *before = call.floats(1) + row * size;
      const float* gates = call.floats(2) + row * 4 * size;
      float *given = call.floats(6) + row * 3 * size, *own = call.floats(7) + row * 3 * size;
      for (Index j = 0; j < size; j += LANES) {
        const Index count = size - j;
        const Float8 r = load_some(gates + j, count), z = load_some(gates + size + j, count);
        const Float8 n = load_some(gates + 2 * size + j, count), u = load_some(gates + 3 * size + j, count);
        const Float8 dh = load_some(after + j, count) + load_some(carried + i * size + j, count);
        const Float8 dn = dh * (1.0f - z) * (1.0f - n * n);
        const Float8 dz = dh * (load_some(before + j, count) - n) * z * (1.0f - z);
        const Float8 dr = dn * u * r * (1.0f - r);
        store_some(direct + i * size + j, dh * z, count);
        store_some(given + j, dr, count);
        store_some(given + size + j, dz, count);
        store_some(given + 2 * size + j, dn, count);
        store_some(own + j, dr, count);
        store_some(own + size + j, dz, count);
        store_some(own + 2 * size + j, dn * r, count);
      }
    }
    multiply_plain(batch, size, 3 * size, call.floats(7) + first * 3 * size, call.floats(5), size, carried);
    for (Index i = 0; i < batch; i++) {
      const bool begun = call.floats(3)[first + i] != 0.0f;
      for (Index j = i * size; j < (i + 1) * size; j++) carried[j] = begun ? 0.0f : carried[j] + direct[j];
    }
  }
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(gru, minding::gru)
DEFINE_KERNEL(gru_slopes, minding::gru_slopes)
