// Rows of a loss, and their weights in its means.
#pragma once

#include "custom.h"
#include "functions.h"

namespace minding {

// Weights (B,), or () if one weight holds for all rows: input number `input` of a call whose first input has the rows.
struct WeightedRows {
  const Call& call;
  Index batch;
  int input;
  bool weights;

  ALWAYS_INLINE WeightedRows(const Call& given, int weight)
      : call(given), batch(given.size(0)), input(weight), weights(given.dimensions[weight] > 0) {}

  // Eight rows, beginning with row i; after the last row zeros, which add nothing to sums.
  ALWAYS_INLINE Float8 rows(int of, Index i) const { return load_some(call.floats(of) + i, batch - i); }
  ALWAYS_INLINE Float8 weight(Index i) const { return weights ? rows(input, i) : Float8{} + *call.floats(input); }

  // The number by which the weight of a row is divided.
  ALWAYS_INLINE float divisor() const {
    if (!weights) return *call.floats(input) * batch;
    Float8 sum{};
    for (Index i = 0; i < batch; i += LANES) sum += weight(i);
    const float mean = sum_of(sum) / batch;
    return (mean < 1e-8f ? 1e-8f : mean) * batch;
  }
};

}  // namespace minding
