// Products of float32 matrices on one core: C = A B, followed by an activation.
//
// C is computed 16 columns at a time: these columns of B are packed into a panel that stays in the first-level cache,
// and tiles of 6 x 16 sums stay in registers (Goto and van de Geijn, 2008, https://doi.org/10.1145/1356052.1356053).
#pragma once

#include <cstring>

#include "vectors.h"

namespace minding {

constexpr Index TILE_ROWS = 6;
constexpr Index TILE_COLUMNS = 2 * LANES;
// Terms of a sum that are added at a time, so that a panel has 16 KB.
constexpr Index BLOCK = 256;

// A matrix in memory; with `by_columns` the elements of a column are neighbors, else the elements of a row.
template <bool by_columns>
struct Matrix {
  const float* data;
  Index stride;
  ALWAYS_INLINE const float* at(Index row, Index column) const {
    return data + (by_columns ? column * stride + row : row * stride + column);
  }
};

template <int rows, bool wide, bool by_columns>
ALWAYS_INLINE void tile(Index terms, Matrix<by_columns> a, const float* panel, const float* start, float* c,
                        Index c_stride, Index columns) {
  Float8 sum[rows][2];
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = Float8{};
  if (by_columns) {
    // C is the gradient of a parameter here, whose memory was last used one update ago.
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) __builtin_prefetch(c + r * c_stride, 1);
  }
  for (Index k = 0; k < terms; k++) {
    Float8 left = load(panel + k * TILE_COLUMNS), right{};
    if (wide) right = load(panel + k * TILE_COLUMNS + LANES);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
      float factor = *a.at(r, k);
      sum[r][0] += factor * left;
      if (wide) sum[r][1] += factor * right;
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < rows; r++) {
    float* out = c + r * c_stride;
    // Without `start`, the sum is added to the numbers in C.
    float partial[TILE_COLUMNS] = {};
    const float* before = start;
    if (start == nullptr && columns == TILE_COLUMNS) before = out;
    if (start == nullptr && columns < TILE_COLUMNS) {
      std::memcpy(partial, out, columns * sizeof(float));
      before = partial;
    }
    Float8 left = sum[r][0] + load(before), right = sum[r][1] + load(before + LANES);
    if (columns == TILE_COLUMNS) {
      store(out, left);
      store(out + LANES, right);
    } else {
      store(partial, left);
      store(partial + LANES, right);
      std::memcpy(out, partial, columns * sizeof(float));
    }
  }
}

template <bool wide, bool by_columns>
ALWAYS_INLINE void rows_of_tiles(Index m, Index terms, Matrix<by_columns> a, const float* panel, const float* start,
                                 float* c, Index c_stride, Index columns) {
#define MINDING_TILE(rows) \
  tile<rows, wide, by_columns>(terms, {a.at(i, 0), a.stride}, panel, start, c + i * c_stride, c_stride, columns)
  Index i = 0;
  for (; i + TILE_ROWS <= m; i += TILE_ROWS) MINDING_TILE(TILE_ROWS);
  switch (m - i) {
    case 1: MINDING_TILE(1); break;
    case 2: MINDING_TILE(2); break;
    case 3: MINDING_TILE(3); break;
    case 4: MINDING_TILE(4); break;
    case 5: MINDING_TILE(5); break;
  }
#undef MINDING_TILE
}

// to[column][row] = from[row][column] of 8 x 8 elements.
ALWAYS_INLINE void transpose8(const float* from, Index from_stride, float* to, Index to_stride) {
  Float8 a[8], b[8];
  for (int i = 0; i < 8; i++) a[i] = load(from + i * from_stride);
  for (int i = 0; i < 8; i += 2) {
    b[i] = SHUFFLE(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    b[i + 1] = SHUFFLE(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; j++) {
      a[i + 2 * j] = SHUFFLE(b[i + j], b[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      a[i + 2 * j + 1] = SHUFFLE(b[i + j], b[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; i++) {
    store(to + i * to_stride, SHUFFLE(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11));
    store(to + (i + 4) * to_stride, SHUFFLE(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15));
  }
}

// panel (terms, 16) = up to 16 columns of B, padded with zeros.
template <bool by_columns>
ALWAYS_INLINE void pack(Index terms, Index columns, Matrix<by_columns> b, float* panel) {
  Index done = 0;
  if (by_columns) {
    for (; done + LANES <= columns; done += LANES) {
      Index k = 0;
      for (; k + LANES <= terms; k += LANES)
        transpose8(b.at(k, done), b.stride, panel + k * TILE_COLUMNS + done, TILE_COLUMNS);
      for (; k < terms; k++)
        for (Index j = done; j < done + LANES; j++) panel[k * TILE_COLUMNS + j] = *b.at(k, j);
    }
  } else if (columns == TILE_COLUMNS) {
    for (Index k = 0; k < terms; k++) {
      store(panel + k * TILE_COLUMNS, load(b.at(k, 0)));
      store(panel + k * TILE_COLUMNS + LANES, load(b.at(k, LANES)));
    }
    return;
  }
  for (Index k = 0; k < terms; k++)
    for (Index j = done; j < TILE_COLUMNS; j++) panel[k * TILE_COLUMNS + j] = j < columns ? *b.at(k, j) : 0.0f;
}

// Panels (terms, 6) of neighboring rows of A, whose columns are far apart and would evict each other from the cache.
ALWAYS_INLINE void pack_rows(Index m, Index terms, Matrix<true> a, float* panels) {
  for (Index i = 0; i < m; i += TILE_ROWS) {
    float* panel = panels + i * terms;
    Index rows = smaller(TILE_ROWS, m - i);
    // Numbers copied beyond the panel's 6 rows are overwritten by the next term.
    bool whole = i + LANES <= m;
    for (Index k = 0; k < terms; k++) {
      if (whole) store(panel + k * TILE_ROWS, load(a.at(i, k)));
      else for (Index r = 0; r < rows; r++) panel[k * TILE_ROWS + r] = *a.at(i + r, k);
    }
  }
}

// c (m, n) = A B + bias for A (m, k) and B (k, n), `bias` (n,) or null. `c_stride` elements lie between the starts of
// two rows of c. `finish(rows, columns, start, stride)` changes finished columns of c while they are in the cache.
//
// An element is the sum of its terms in their order, in groups of BLOCK, independent of the other elements: computing
// the blocks of a product one by one gives a result that is bit-identical to the whole product.
template <bool a_by_columns, bool b_by_columns, class Finish>
ALWAYS_INLINE void multiply(Index m, Index n, Index k, Matrix<a_by_columns> a, Matrix<b_by_columns> b,
                            const float* bias, float* c, Index c_stride, Finish finish) {
  alignas(64) float panel[BLOCK * TILE_COLUMNS];
  for (Index first = 0; first < k; first += BLOCK) {
    Index terms = smaller(BLOCK, k - first);
    // Number of rows per pass, and distance to the rows of the next pass.
    Index height = m, step = 0;
    Matrix<a_by_columns> rows{a.at(0, first), a.stride};
    if constexpr (a_by_columns) {
      if (m > TILE_ROWS) {
        // The copies write up to two floats beyond the last row.
        static thread_local Workspace workspace;
        float* panels = workspace.floats(round_up(m, TILE_ROWS) * terms + LANES);
        pack_rows(m, terms, {a.at(0, first), a.stride}, panels);
        rows = {panels, TILE_ROWS};
        height = TILE_ROWS;
        step = TILE_ROWS * terms;
      }
    }
    for (Index j = 0; j < n; j += TILE_COLUMNS) {
      Index columns = smaller(TILE_COLUMNS, n - j);
      pack<b_by_columns>(terms, columns, {b.at(first, j), b.stride}, panel);
      float begin[TILE_COLUMNS] = {};
      if (first == 0 && bias != nullptr) std::memcpy(begin, bias + j, columns * sizeof(float));
      const float* start = first == 0 ? begin : nullptr;
      const float* next = rows.data;
      for (Index i = 0; i < m; i += height, next += step) {
        Index count = smaller(height, m - i);
        Matrix<a_by_columns> left{next, rows.stride};
        if (columns > LANES)
          rows_of_tiles<true>(count, terms, left, panel, start, c + i * c_stride + j, c_stride, columns);
        else
          rows_of_tiles<false>(count, terms, left, panel, start, c + i * c_stride + j, c_stride, columns);
      }
      if (first + terms == k) finish(m, columns, c + j, c_stride);
    }
  }
}

}  // namespace minding
