// Log-probabilities and entropies of independent choices, as in `ops.distributions`, and their gradient.
//
// For a choice among n actions with logits l: log p_j = l_j - log sum_i exp(l_i), H = -sum_j p_j log p_j. The results
// of several choices are added.
#include "custom.h"
#include "functions.h"

namespace minding {
namespace {

// The choices of a row: their logits follow one another, and choice k ends before `stops[k]`.
struct Choices {
  Index count;
  const int32_t* stops;

  ALWAYS_INLINE Index start(Index k) const { return k == 0 ? 0 : stops[k - 1]; }
};

// x - max x for each choice and row, (B, S) -> (B, S); a NaN makes its own entry NaN, and so the sum of its choice.
ALWAYS_INLINE void shift(const Choices& choices, Index batch, Index width, const float* x, float* shifted) {
  for (Index k = 0; k < choices.count; k++)
    for (Index i = 0; i < batch; i++) {
      const Index begin = i * width + choices.start(k), end = i * width + choices.stops[k];
      float largest = x[begin];
      for (Index j = begin + 1; j < end; j++) largest = x[j] > largest ? x[j] : largest;
      for (Index j = begin; j < end; j++) shifted[j] = x[j] - largest;
    }
}

ALWAYS_INLINE void exponentials(Index count, const float* x, float* y) {
  for (Index i = 0; i < count; i += LANES) store_some(y + i, any_exponential(load_some(x + i, count - i)), count - i);
}

ALWAYS_INLINE bool exist(const Choices& choices, Index batch, const int32_t* actions) {
  for (Index i = 0; i < batch; i++)
    for (Index k = 0; k < choices.count; k++) {
      const int32_t action = actions[i * choices.count + k];
      if (action < 0 || action >= choices.stops[k] - choices.start(k)) return false;
    }
  return true;
}

// logits (B, S), actions int32 (B,) or (B, K), end of each choice among the S int32 (K,)
//   -> log-probability and entropy (B,), logarithms of all probabilities (B, S)
ALWAYS_INLINE int categorical(const Call& call) {
  static thread_local Workspace of_logits, of_choices;
  const Index batch = call.shapes[0][0], width = call.shapes[0][1], count = batch * width;
  const Choices choices{call.size(2), call.integers(2)};
  const int32_t* actions = call.integers(1);
  if (!exist(choices, batch, actions)) return 1;
  float *log_prob = call.floats(3), *entropy = call.floats(4), *log_p = call.floats(5);
  shift(choices, batch, width, call.floats(0), log_p);
  float* weights = of_logits.floats(count + LANES);
  exponentials(count, log_p, weights);
  float* totals = of_choices.floats(2 * round_up(batch + 1, LANES));
  float* logs = totals + round_up(batch + 1, LANES);
  for (Index i = 0; i < batch; i++) log_prob[i] = entropy[i] = 0.0f;
  for (Index k = 0; k < choices.count; k++) {
    const Index start = choices.start(k), stop = choices.stops[k];
    for (Index i = 0; i < batch; i++) {
      float total = 0.0f;
      for (Index j = start; j < stop; j++) total += weights[i * width + j];
      totals[i] = total;
    }
    for (Index i = 0; i < batch; i += LANES) store(logs + i, logarithm(load_some(totals + i, batch - i)));
    for (Index i = 0; i < batch; i++) {
      float* log_p_i = log_p + i * width;
      float weighted = 0.0f;
      for (Index j = start; j < stop; j++) {
        weighted += weights[i * width + j] * log_p_i[j];
        log_p_i[j] -= logs[i];
      }
      log_prob[i] += log_p_i[start + actions[i * choices.count + k]];
      entropy[i] += logs[i] - weighted / totals[i];
    }
  }
  return 0;
}

// logarithms of all probabilities (B, S), actions, ends, gradients of log-probability and entropy (B,)
//   -> gradient of the logits (B, S)
//
// d log p_a / d l_j = [j = a] - p_j,   d H / d l_j = -p_j (log p_j + H)
ALWAYS_INLINE int categorical_gradient(const Call& call) {
  const Index batch = call.shapes[0][0], width = call.shapes[0][1];
  const Choices choices{call.size(2), call.integers(2)};
  const int32_t* actions = call.integers(1);
  const float *log_p = call.floats(0), *dlog_prob = call.floats(3), *dentropy = call.floats(4);
  float* slopes = call.floats(5);
  exponentials(batch * width, log_p, slopes);
  for (Index k = 0; k < choices.count; k++) {
    const Index start = choices.start(k), stop = choices.stops[k];
    for (Index i = 0; i < batch; i++) {
      const float* log_p_i = log_p + i * width;
      float *slope = slopes + i * width, entropy = 0.0f;
      for (Index j = start; j < stop; j++) entropy -= slope[j] * log_p_i[j];
      for (Index j = start; j < stop; j++) slope[j] *= -dlog_prob[i] - dentropy[i] * (log_p_i[j] + entropy);
      slope[start + actions[i * choices.count + k]] += dlog_prob[i];
    }
  }
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(categorical, minding::categorical)
DEFINE_KERNEL(categorical_gradient, minding::categorical_gradient)
