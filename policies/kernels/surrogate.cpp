// The clipped surrogate objective with the losses of value and entropy; see `ppo.ppo_loss` for the formulas.
#include "weighted.h"

namespace minding {
namespace {

enum { LOG_PROB, ENTROPY, VALUE, OLD_LOG_PROB, OLD_VALUE, ADVANTAGE, RETURN, WEIGHT, SETTINGS, RESULTS };

// The inputs of both kernels; entropy and weight have one entry per row, or are one number for all rows.
struct Objective : WeightedRows {
  float clip, value_clip, value_weight, entropy_weight;
  bool entropies;

  ALWAYS_INLINE explicit Objective(const Call& given)
      : WeightedRows(given, WEIGHT), clip(given.floats(SETTINGS)[0]), value_clip(given.floats(SETTINGS)[1]),
        value_weight(given.floats(SETTINGS)[2]), entropy_weight(given.floats(SETTINGS)[3]),
        entropies(given.dimensions[ENTROPY] > 0) {}
};

// Policy ratio and both surrogates for eight rows.
struct Surrogate {
  Float8 log_ratio, ratio, free, clipped;

  ALWAYS_INLINE Surrogate(const Objective& of, Index i) {
    log_ratio = of.rows(LOG_PROB, i) - of.rows(OLD_LOG_PROB, i);
    ratio = any_exponential(log_ratio);
    const Float8 advantage = of.rows(ADVANTAGE, i);
    free = -advantage * ratio;
    clipped = -advantage * bounded(ratio, 1.0f - of.clip, 1.0f + of.clip);
  }
};

// Errors of the value and of the value clipped around the old one, for eight rows.
struct ValueError {
  Float8 change, free, clipped;

  ALWAYS_INLINE ValueError(const Objective& of, Index i) {
    const Float8 value = of.rows(VALUE, i), old = of.rows(OLD_VALUE, i), target = of.rows(RETURN, i);
    change = value - old;
    free = value - target;
    clipped = of.value_clip >= 0.0f ? old + bounded(change, -of.value_clip, of.value_clip) - target : free;
  }
};

// inputs: see the enumeration; settings: clip range, clip range of the value or -1, weights of value and entropy
//   -> loss, policy loss, value loss, entropy, estimate of the KL divergence, share of clipped ratios, () each
ALWAYS_INLINE int clipped_surrogate(const Call& call) {
  const Objective of(call);
  Float8 policy{}, value{}, entropy{}, divergence{}, outside{};
  for (Index i = 0; i < of.batch; i += LANES) {
    const Float8 weight = of.weight(i);
    const Surrogate surrogate(of, i);
    const ValueError error(of, i);
    policy += weight * larger(surrogate.free, surrogate.clipped);
    value += weight * larger(error.free * error.free, error.clipped * error.clipped);
    if (of.entropies) entropy += weight * of.rows(ENTROPY, i);
    divergence += weight * (surrogate.ratio - 1.0f - surrogate.log_ratio);
    outside += weight * where(magnitude(surrogate.ratio - 1.0f) > of.clip, Float8{} + 1.0f, Float8{});
  }
  const float divisor = of.divisor();
  const float policy_loss = sum_of(policy) / divisor, value_loss = 0.5f * sum_of(value) / divisor;
  const float mean_entropy = of.entropies ? sum_of(entropy) / divisor : *call.floats(ENTROPY);
  *call.floats(RESULTS) = policy_loss + of.value_weight * value_loss - of.entropy_weight * mean_entropy;
  *call.floats(RESULTS + 1) = policy_loss;
  *call.floats(RESULTS + 2) = value_loss;
  *call.floats(RESULTS + 3) = mean_entropy;
  *call.floats(RESULTS + 4) = sum_of(divergence) / divisor;
  *call.floats(RESULTS + 5) = sum_of(outside) / divisor;
  return 0;
}

// the same inputs, gradient of the loss () -> gradients of log-probability, entropy and value, shaped like these
ALWAYS_INLINE int clipped_surrogate_gradient(const Call& call) {
  const Objective of(call);
  const float scale = *call.floats(RESULTS), share = scale / of.divisor();
  float *dlog_prob = call.floats(RESULTS + 1), *dentropy = call.floats(RESULTS + 2), *dvalue = call.floats(RESULTS + 3);
  for (Index i = 0; i < of.batch; i += LANES) {
    const Index rest = of.batch - i;
    const Float8 weight = of.weight(i) * share, zero{};
    const Surrogate surrogate(of, i);
    // Where the clipped one is larger, the ratio is out of range and the objective is flat. NaN passes, here and below.
    store_some(dlog_prob + i, weight * where(surrogate.free < surrogate.clipped, zero, surrogate.free), rest);
    const ValueError error(of, i);
    const Float8 free = error.free * error.free, clipped = error.clipped * error.clipped;
    Float8 flat = of.value_clip >= 0.0f ? where(magnitude(error.change) > of.value_clip, zero, error.clipped) : error.clipped;
    Float8 slope = where((free >= clipped) | (free != free), error.free, flat);
    store_some(dvalue + i, of.value_weight * weight * slope, rest);
    if (of.entropies) store_some(dentropy + i, -of.entropy_weight * weight, rest);
  }
  if (!of.entropies) *dentropy = -of.entropy_weight * scale;
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(clipped_surrogate, minding::clipped_surrogate)
DEFINE_KERNEL(clipped_surrogate_gradient, minding::clipped_surrogate_gradient)
