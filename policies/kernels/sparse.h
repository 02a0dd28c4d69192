// Products with results of ReLU, which have many zeros, and with the slope of ReLU, which is zero or one.
#pragma once

#include "vectors.h"

namespace minding {

// The mask of a matrix: 1 where a number is above zero or NaN, else 0. A block of 32 columns has eight bytes per row.
// Each byte holds four neighbors in its upper bits, so that it is a distance in a table. Bits after the last column
// are zero.
struct Mask {
  Index rows, columns;
  const uint8_t* bytes;

  static constexpr Index WIDTH = 32, BYTES = 8;
  static constexpr Index blocks(Index columns) { return (columns + WIDTH - 1) / WIDTH; }
  static constexpr Index size(Index rows, Index columns) { return blocks(columns) * rows * BYTES; }
};

// The mask of x (rows, columns), in `bytes`, an array of `Mask::size(rows, columns)` bytes.
Mask mask_of(Index rows, Index columns, const float* x, uint8_t* bytes);
// The mask of the transpose of x (rows, columns), in `bytes`, an array of `Mask::size(columns, rows)` bytes.
Mask mask_of_transposed(Index rows, Index columns, const float* x, uint8_t* bytes);

// c (m, n) = diag(left) mask diag(right) b for a mask (m, k), b (k, n). Terms with a zero of the mask are left out, so
// `right` and b have to be finite.
void multiply_mask(const Mask& mask, Index n, const float* left, const float* right, const float* b, float* c);

// Whether `multiply_sparse` suits a (m, k), which means that enough numbers in a sample of its rows are zero.
bool is_sparse(Index m, Index k, const float* a, Index a_stride);
// c (m, n) = activation(a b + bias), `bias` (n,) or null, for a (m, k) with many zeros and b (k, n), or (n, k) if
// `b_transposed`. Terms with a zero of a are left out, so b has to be finite. The result is bit-identical to the result
// of `multiply`. A stride is the distance between two rows in memory.
void multiply_sparse(Index m, Index n, Index k, const float* a, Index a_stride, const float* b, Index b_stride,
                     bool b_transposed, const float* bias, float* c, int activation);

}  // namespace minding
