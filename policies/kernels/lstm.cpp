// A long short-term memory over sequences as kernels of a MindSpore graph: one kernel for all steps, and one for the
// part of the gradient that passes from step to step. See `LSTM` in networks/recurrent.py for the formula.
//
// T steps of B sequences are T B rows, ordered by time; a state has S numbers, and so has a cell.
#include "layers.h"

namespace minding {
namespace {

// States and cells before a step: zeros where an episode has begun, else the ones after the previous step.
ALWAYS_INLINE void begin_step(Index batch, Index size, const float* begun, const float* state, const float* cell,
                              float* state_before, float* cell_before) {
  for (Index i = 0; i < batch; i++) {
    const Index place = i * size, bytes = size * sizeof(float);
    if (begun[i] != 0.0f) {
      std::memset(state_before + place, 0, bytes);
      std::memset(cell_before + place, 0, bytes);
    } else {
      std::memcpy(state_before + place, state + place, bytes);
      std::memcpy(cell_before + place, cell + place, bytes);
    }
  }
}

// W x + b (T B, 4 S), whether an episode begins (T B,), first states and cells joined (B, 2 S), U (4 S, S),
// c (4 S,)
//   -> states after each row and before it, cells before it, (T B, S) each; i, f, o, g and tanh of the new cell
//      (T B, 5 S)
ALWAYS_INLINE int lstm(const Call& call) {
  static thread_local Workspace workspace;
  const Index total = call.shapes[0][0], batch = call.shapes[2][0], size = call.shapes[2][1] / 2;
  float *own = workspace.floats(batch * 6 * size), *cells = own + batch * 4 * size, *first_states = cells + batch * size;
  for (Index i = 0; i < batch; i++) {
    std::memcpy(first_states + i * size, call.floats(2) + i * 2 * size, size * sizeof(float));
    std::memcpy(cells + i * size, call.floats(2) + (2 * i + 1) * size, size * sizeof(float));
  }
  const float* states = first_states;
  for (Index first = 0; first < total; first += batch) {
    float *after = call.floats(5) + first * size, *before = call.floats(6) + first * size;
    float* cell_before = call.floats(7) + first * size;
    begin_step(batch, size, call.floats(1) + first, states, cells, before, cell_before);
    multiply_by_transposed(batch, 4 * size, size, before, call.floats(3), call.floats(4), own, NONE);
    for (Index i = 0; i < batch; i++) {
      const float *given = call.floats(0) + (first + i) * 4 * size, *kept = own + i * 4 * size;
      float* gates = call.floats(8) + (first + i) * 5 * size;
      for (Index j = 0; j < size; j += LANES) {
        const Index count = size - j;
        const Float8 in = sigmoid(load_some(given + j, count) + load_some(kept + j, count));
        const Float8 forget = sigmoid(load_some(given + size + j, count) + load_some(kept + size + j, count));
        const Float8 out = sigmoid(load_some(given + 2 * size + j, count) + load_some(kept + 2 * size + j, count));
        const Float8 made =
            hyperbolic_tangent(load_some(given + 3 * size + j, count) + load_some(kept + 3 * size + j, count));
        const Float8 cell = forget * load_some(cell_before + i * size + j, count) + in * made;
        const Float8 shown = hyperbolic_tangent(cell);
        store_some(cells + i * size + j, cell, count);
        store_some(after + i * size + j, out * shown, count);
        store_some(gates + j, in, count);
        store_some(gates + size + j, forget, count);
        store_some(gates + 2 * size + j, out, count);
        store_some(gates + 3 * size + j, made, count);
        store_some(gates + 4 * size + j, shown, count);
      }
    }
    states = after;
  }
  return 0;
}

// gradient of the states after each row (T B, S), cells before each row (T B, S), gates (T B, 5 S), whether an episode
// begins (T B,), first states and cells (B, 2 S), U (4 S, S)
//   -> gradients of W x + b + U h + c (T B, 4 S), and of the first states and cells (B, 2 S)
ALWAYS_INLINE int lstm_slopes(const Call& call) {
  const Index total = call.shapes[0][0], batch = call.shapes[4][0], size = call.shapes[4][1] / 2;
  // The gradients of the states and cells after the current step, from the later steps.
  static thread_local Workspace workspace;
  float *dstates = workspace.floats(batch * 2 * size), *dcells = dstates + batch * size;
  std::memset(dstates, 0, batch * 2 * size * sizeof(float));
  for (Index first = total - batch; first >= 0 && batch > 0; first -= batch) {
    for (Index i = 0; i < batch; i++) {
      const Index row = first + i;
      const float *after = call.floats(0) + row * size, *cell_before = call.floats(1) + row * size;
      const float* gates = call.floats(2) + row * 5 * size;
      float* slopes = call.floats(6) + row * 4 * size;
      for (Index j = 0; j < size; j += LANES) {
        const Index count = size - j;
        const Float8 in = load_some(gates + j, count), forget = load_some(gates + size + j, count);
        const Float8 out = load_some(gates + 2 * size + j, count), made = load_some(gates + 3 * size + j, count);
        const Float8 shown = load_some(gates + 4 * size + j, count);
        const Float8 dh = load_some(after + j, count) + load_some(dstates + i * size + j, count);
        const Float8 dc = load_some(dcells + i * size + j, count) + dh * out * (1.0f - shown * shown);
        store_some(slopes + j, dc * made * in * (1.0f - in), count);
        store_some(slopes + size + j, dc * load_some(cell_before + j, count) * forget * (1.0f - forget), count);
        store_some(slopes + 2 * size + j, dh * shown * out * (1.0f - out), count);
        store_some(slopes + 3 * size + j, dc * in * (1.0f - made * made), count);
        store_some(dcells + i * size + j, dc * forget, count);
      }
    }
    multiply_plain(batch, size, 4 * size, call.floats(6) + first * 4 * size, call.floats(5), size, dstates);
    for (Index i = 0; i < batch; i++) {
      if (call.floats(3)[first + i] == 0.0f) continue;
      std::memset(dstates + i * size, 0, size * sizeof(float));
      std::memset(dcells + i * size, 0, size * sizeof(float));
    }
  }
  for (Index i = 0; i < batch; i++) {
    std::memcpy(call.floats(7) + i * 2 * size, dstates + i * size, size * sizeof(float));
    std::memcpy(call.floats(7) + (2 * i + 1) * size, dcells + i * size, size * sizeof(float));
  }
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(lstm, minding::lstm)
DEFINE_KERNEL(lstm_slopes, minding::lstm_slopes)
