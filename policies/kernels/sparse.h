// Products with what ReLU makes: numbers of which many are zero, and its slope, which is zero or one.
#pragma once

#include "vectors.h"

namespace minding {

// Where the numbers of a matrix are not at most zero (NaN counts as such). A block of 32 columns has eight bytes for each
// row, each of which holds four neighbours in its upper bits, so that it is a distance; what lies beyond the last column is zero.
struct Mask {
  Index rows, columns;
  const uint8_t* bytes;

  static constexpr Index WIDTH = 32, BYTES = 8;
  static constexpr Index blocks(Index columns) { return (columns + WIDTH - 1) / WIDTH; }
  static constexpr Index size(Index rows, Index columns) { return blocks(columns) * rows * BYTES; }
};

// The mask of x (rows, columns), in `bytes`, which has `Mask::size(rows, columns)` of them
Mask mask_of(Index rows, Index columns, const float* x, uint8_t* bytes);
// The mask of the transpose of x (rows, columns), in `bytes`, which has `Mask::size(columns, rows)` of them
Mask mask_of_transposed(Index rows, Index columns, const float* x, uint8_t* bytes);

// c (m, n) = diag(left) mask diag(right) b for a mask (m, k), b (k, n). Zeros of the mask count as zeros whatever they
// are multiplied by: `right` and b have to be finite.
void multiply_mask(const Mask& mask, Index n, const float* left, const float* right, const float* b, float* c);

// Whether `multiply_sparse` is for a (m, k): whether enough of it is zero, as a sample of its rows says.
bool is_sparse(Index m, Index k, const float* a, Index a_stride);
// c (m, n) = activation(a b + bias), `bias` (n,) or null, for a (m, k) with many zeros and b (k, n), or (n, k) if
// `b_transposed`. Zeros of a count as zeros whatever they are multiplied by: b has to be finite. To the bit what
// `multiply` computes. A stride is the distance between two rows in memory.
void multiply_sparse(Index m, Index n, Index k, const float* a, Index a_stride, const float* b, Index b_stride,
                     bool b_transposed, const float* bias, float* c, int activation);

}  // namespace minding
