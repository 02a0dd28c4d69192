// The loss of an actor with a state value; see `ops.policy_gradient.advantage_loss` for the formulas.
#include "weighted.h"

namespace minding {
namespace {

enum { LOG_PROB, ENTROPY, VALUE, OLD_LOG_PROB, ADVANTAGE, RETURN, WEIGHT, SETTINGS, RESULTS };

// The inputs of both kernels; entropy and weight have one entry per row, or are one number for all rows.
struct ActorCriticLoss : WeightedRows {
  float value_weight, entropy_weight;
  bool entropies;

  ALWAYS_INLINE explicit ActorCriticLoss(const Call& given)
      : WeightedRows(given, WEIGHT), value_weight(given.floats(SETTINGS)[0]),
        entropy_weight(given.floats(SETTINGS)[1]), entropies(given.dimensions[ENTROPY] > 0) {}
};

// inputs: see the enumeration; settings: weights of value and entropy
//   -> loss, policy loss, value loss, entropy, estimate of the KL divergence, () each
ALWAYS_INLINE int advantage_loss(const Call& call) {
  const ActorCriticLoss of(call);
  Float8 policy{}, value{}, entropy{}, divergence{};
  for (Index i = 0; i < of.batch; i += LANES) {
    const Float8 weight = of.weight(i), log_prob = of.rows(LOG_PROB, i);
    const Float8 error = of.rows(VALUE, i) - of.rows(RETURN, i), log_ratio = log_prob - of.rows(OLD_LOG_PROB, i);
    policy -= weight * of.rows(ADVANTAGE, i) * log_prob;
    value += weight * error * error;
    if (of.entropies) entropy += weight * of.rows(ENTROPY, i);
    divergence += weight * (any_exponential(log_ratio) - 1.0f - log_ratio);
  }
  const float divisor = of.divisor();
  const float policy_loss = sum_of(policy) / divisor, value_loss = 0.5f * sum_of(value) / divisor;
  const float mean_entropy = of.entropies ? sum_of(entropy) / divisor : *call.floats(ENTROPY);
  *call.floats(RESULTS) = policy_loss + of.value_weight * value_loss - of.entropy_weight * mean_entropy;
  *call.floats(RESULTS + 1) = policy_loss;
  *call.floats(RESULTS + 2) = value_loss;
  *call.floats(RESULTS + 3) = mean_entropy;
  *call.floats(RESULTS + 4) = sum_of(divergence) / divisor;
  return 0;
}

// the same inputs, gradient of the loss () -> gradients of log-probability, entropy and value, shaped like these
ALWAYS_INLINE int advantage_loss_gradient(const Call& call) {
  const ActorCriticLoss of(call);
  const float scale = *call.floats(RESULTS), share = scale / of.divisor();
  float *dlog_prob = call.floats(RESULTS + 1), *dentropy = call.floats(RESULTS + 2), *dvalue = call.floats(RESULTS + 3);
  for (Index i = 0; i < of.batch; i += LANES) {
    const Index rest = of.batch - i;
    const Float8 weight = of.weight(i) * share;
    store_some(dlog_prob + i, -weight * of.rows(ADVANTAGE, i), rest);
    store_some(dvalue + i, of.value_weight * weight * (of.rows(VALUE, i) - of.rows(RETURN, i)), rest);
    if (of.entropies) store_some(dentropy + i, -of.entropy_weight * weight, rest);
  }
  if (!of.entropies) *dentropy = -of.entropy_weight * scale;
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(advantage_loss, minding::advantage_loss)
DEFINE_KERNEL(advantage_loss_gradient, minding::advantage_loss_gradient)
