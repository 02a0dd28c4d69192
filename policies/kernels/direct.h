// Convolutions without patches: each number of an image is multiplied where it lies.
#pragma once

#include "vectors.h"

namespace minding {

// Filters that are computed together, and the unit of packed weights: (groups, terms, WIDTH), the last one padded.
constexpr Index WIDTH = 16;

// Distances in memory, in numbers: of the terms of a sum from the place that it begins at, of these places from the
// image, and of the results from the first one.
struct Taps {
  Index terms, places;
  const int32_t *term, *place, *result;
};

// For each place p and the WIDTH numbers i of a group of packed weights:
// out[result[p] + i] = bias[i] + sum of x[place[p] + term[t]] weights[t][i], at least 0 if `relu`. `bias` may be null.
void add_taps(const Taps& taps, const float* x, const float* weights, const float* bias, bool relu, float* out);

// sums[t][i] += sum of x[place[p] + term[t]] dout[p * filters + i] over the places
void add_tap_gradients(const Taps& taps, const float* x, const float* dout, Index filters, float* sums);

// to (columns, rows) = from (rows, columns); the rows of `to` have `stride` numbers.
void turn(Index rows, Index columns, const float* from, float* to, Index stride);

}  // namespace minding
