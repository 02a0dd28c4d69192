// Rows of a loss, and what each of them counts in its means.
#pragma once

#include "custom.h"
#include "functions.h"

namespace minding {

// Weights (B,), or () for one that holds for all rows, at the place `input` of a call whose first input has the rows.
struct WeightedRows {
  const Call& call;
  Index batch;
  int input;
  bool weights;

  ALWAYS_INLINE WeightedRows(const Call& given, int weight)
      : call(given), batch(given.size(0)), input(weight), weights(given.dimensions[weight] > 0) {}

  // Eight rows from i on; beyond the last one zeros, which add nothing to any sum.
  ALWAYS_INLINE Float8 rows(int of, Index i) const { return load_some(call.floats(of) + i, batch - i); }
  ALWAYS_INLINE Float8 weight(Index i) const { return weights ? rows(input, i) : Float8{} + *call.floats(input); }

  // What a row's weight is divided by.
  ALWAYS_INLINE float divisor() const {
    if (!weights) return *call.floats(input) * batch;
    Float8 sum{};
    for (Index i = 0; i < batch; i += LANES) sum += weight(i);
    const float mean = sum_of(sum) / batch;
    return (mean < 1e-8f ? 1e-8f : mean) * batch;
  }
};

}  // namespace minding
