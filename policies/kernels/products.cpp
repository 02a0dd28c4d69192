// The products of linear layers. Large products are divided among the threads of kernels, and computed by oneDNN where
// it is faster; see `use_onednn`.
#include "gemm.h"
#include "layers.h"
#include "onednn.h"
#include "sparse.h"
#include "threads.h"

namespace minding {
namespace {

// Rows of a block of a divided product: a multiple of the tile, large enough to make the cost of packing negligible.
constexpr Index BLOCK_ROWS = 64 * TILE_ROWS;
// With fewer rows, columns or terms, oneDNN's preparations take more time than it saves.
constexpr Index NARROW = 64;
// The same for leaving zeros out, such as in batches of 32 images.
constexpr Index SPARSE_NARROW = 32;

// c (m, n) = activation(a b + bias), and the sizes of its blocks. A stride is the distance between two rows in memory.
struct Product {
  Index m, n, k;
  const float* a;
  Index a_stride;
  const float* b;
  Index b_stride;
  const float* bias;
  float* c;
  int activation;
  Index block_rows = 0, block_columns = 0;
};

ALWAYS_INLINE Index blocks(Index size, Index block) { return (size + block - 1) / block; }

// The block of a product with this number.
struct Block {
  Index row, column, rows, columns;
  float* c;
  ALWAYS_INLINE Block(const Product& p, Index number) {
    const Index across = blocks(p.n, p.block_columns);
    row = number / across * p.block_rows;
    column = number % across * p.block_columns;
    rows = smaller(p.block_rows, p.m - row);
    columns = smaller(p.block_columns, p.n - column);
    c = p.c + row * p.n + column;
  }
};

ALWAYS_INLINE void activate(int activation, Index rows, Index columns, float* x, Index stride) {
  if (activation == RELU) change(rows, columns, x, stride, Relu::of);
  if (activation == TANH) change(rows, columns, x, stride, Tanh::of);
}

// One function per form of product; if all of them were inlined into every kernel, compiling would take minutes.

// a (m, k), b (n, k), transposed
CLONED void by_transposed(const void* data, Index number) {
  const Product& p = *static_cast<const Product*>(data);
  const Block block(p, number);
  const int activation = p.activation;
  multiply(block.rows, block.columns, p.k, Matrix<false>{p.a + block.row * p.a_stride, p.a_stride},
           Matrix<true>{p.b + block.column * p.b_stride, p.b_stride}, p.bias + block.column, block.c, p.n,
           [=](Index rows, Index columns, float* x, Index stride)
               __attribute__((always_inline)) { activate(activation, rows, columns, x, stride); });
}

// a (m, k), b (k, n)
CLONED void plain(const void* data, Index number) {
  const Product& p = *static_cast<const Product*>(data);
  const Block block(p, number);
  multiply(block.rows, block.columns, p.k, Matrix<false>{p.a + block.row * p.a_stride, p.a_stride},
           Matrix<false>{p.b + block.column, p.b_stride}, nullptr, block.c, p.n, [](Index, Index, float*, Index) {});
}

// a (k, m), transposed, b (k, n)
CLONED void transposed(const void* data, Index number) {
  const Product& p = *static_cast<const Product*>(data);
  const Block block(p, number);
  multiply(block.rows, block.columns, p.k, Matrix<true>{p.a + block.row, p.a_stride},
           Matrix<false>{p.b + block.column, p.b_stride}, nullptr, block.c, p.n, [](Index, Index, float*, Index) {});
}

// The same products by oneDNN; a block has all columns of its rows.

CLONED void add_and_activate(const Product& p, const Block& block) {
  for (Index i = 0; i < block.rows; i++) {
    float* row = block.c + i * p.n;
    Index j = 0;
    for (; j + LANES <= p.n; j += LANES) store(row + j, load(row + j) + load(p.bias + j));
    for (; j < p.n; j++) row[j] += p.bias[j];
  }
  activate(p.activation, block.rows, p.n, block.c, p.n);
}

void by_transposed_with_onednn(const void* data, Index number) {
  const Product& p = *static_cast<const Product*>(data);
  const Block block(p, number);
  onednn_multiply('N', 'T', block.rows, p.n, p.k, p.a + block.row * p.a_stride, p.a_stride, p.b, p.b_stride, block.c);
  add_and_activate(p, block);
}

void plain_with_onednn(const void* data, Index number) {
  const Product& p = *static_cast<const Product*>(data);
  const Block block(p, number);
  onednn_multiply('N', 'N', block.rows, p.n, p.k, p.a + block.row * p.a_stride, p.a_stride, p.b, p.b_stride, block.c);
}

void transposed_with_onednn(const void* data, Index number) {
  const Product& p = *static_cast<const Product*>(data);
  const Block block(p, number);
  onednn_multiply('T', 'N', block.rows, p.n, p.k, p.a + block.row, p.a_stride, p.b, p.b_stride, block.c);
}

// Few rows: packing b would take longer than the product, so vectors of terms are multiplied where they lie. The lanes of
// a sum are added at the end; they are the same for all kinds of vectors.

constexpr Index FEW_ROWS = 8, SUM_LANES = 16;

ALWAYS_INLINE float sum_of_lanes(const float* lanes) { return sum_of(load(lanes) + load(lanes + LANES)); }

// The sums of neighbors: of two vectors, half a vector of each at a time.
ALWAYS_INLINE Float8 neighbors(Float8 a, Float8 b) {
  return SHUFFLE(a, b, 0, 2, 8, 10, 4, 6, 12, 14) + SHUFFLE(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}

// `sum_of_lanes` of eight sums
ALWAYS_INLINE Float8 sums_of_lanes(const float* lanes) {
  Float8 x[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i++) x[i] = load(lanes + i * SUM_LANES) + load(lanes + i * SUM_LANES + LANES);
  const Float8 a = neighbors(neighbors(x[0], x[1]), neighbors(x[2], x[3]));
  const Float8 b = neighbors(neighbors(x[4], x[5]), neighbors(x[6], x[7]));
  return SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}

// c[i][j] for `rows` rows of a and `columns` rows of b
template <class Lanes, int rows, int columns>
ALWAYS_INLINE void some_sums(const Product& p, const float* a, const float* b, const float* bias, float* c) {
  typedef typename Lanes::Vector Vector;
  constexpr int VECTORS = SUM_LANES * sizeof(float) / sizeof(Vector), LENGTH = SUM_LANES / VECTORS;
  const Index k = p.k, n = p.n, whole = k / SUM_LANES * SUM_LANES;
  Vector sum[rows][columns][VECTORS] = {};
  for (Index t = 0; t < whole; t += SUM_LANES)
    for (int v = 0; v < VECTORS; v++) {
      Vector y[columns];
#pragma GCC unroll 8
      for (int j = 0; j < columns; j++) y[j] = *reinterpret_cast<const Vector*>(b + j * k + t + v * LENGTH);
#pragma GCC unroll 8
      for (int i = 0; i < rows; i++) {
        const Vector x = *reinterpret_cast<const Vector*>(a + i * k + t + v * LENGTH);
#pragma GCC unroll 8
        for (int j = 0; j < columns; j++) sum[i][j][v] += x * y[j];
      }
    }
  alignas(64) float lanes[rows * columns * SUM_LANES], sums[rows * columns];
#pragma GCC unroll 16
  for (int s = 0; s < rows * columns; s++)
    for (int v = 0; v < VECTORS; v++)
      reinterpret_cast<Vector*>(lanes + s * SUM_LANES)[v] = sum[s / columns][s % columns][v];
  for (int s = 0; s < rows * columns; s += rows * columns % 8 ? 1 : 8) {
    if constexpr (rows * columns % 8 == 0) store(sums + s, sums_of_lanes(lanes + s * SUM_LANES));
    else sums[s] = sum_of_lanes(lanes + s * SUM_LANES);
  }
  for (int s = 0; s < rows * columns; s++) {
    const Index i = s / columns, j = s % columns;
    for (Index t = whole; t < k; t++) sums[s] += a[i * k + t] * b[j * k + t];
    c[i * n + j] = sums[s] + bias[j];
  }
}

template <class Lanes, int rows, int columns>
ALWAYS_INLINE void sums_of_rows(const Product& p, Index row) {
  const float* a = p.a + row * p.k;
  float* c = p.c + row * p.n;
  Index j = 0;
  for (; j + columns <= p.n; j += columns)
    some_sums<Lanes, rows, columns>(p, a, p.b + j * p.k, p.bias + j, c + j);
  for (; j < p.n; j++) some_sums<Lanes, rows, 1>(p, a, p.b + j * p.k, p.bias + j, c + j);
}

template <class Lanes>
ALWAYS_INLINE void few_rows(const Product& p) {
  constexpr bool wide = sizeof(typename Lanes::Vector) == SUM_LANES * sizeof(float);
  Index i = 0;
  for (; i + 4 <= p.m; i += 4) sums_of_rows<Lanes, 4, wide ? 4 : 2>(p, i);
  for (; i < p.m; i++) sums_of_rows<Lanes, 1, 8>(p, i);
  activate(p.activation, p.m, p.n, p.c, p.n);
}

void few_rows_anywhere(const Product& p) { few_rows<Eight>(p); }
#ifdef FOR_PROCESSORS
WITH_AVX2 void few_rows_with_avx2(const Product& p) { few_rows<Eight>(p); }
WITH_AVX512 void few_rows_with_avx512(const Product& p) { few_rows<Sixteen>(p); }
#endif

void compute(Product& p, Part part, Index block_rows, Index block_columns) {
  if (p.m == 0 || p.n == 0) return;
  p.block_rows = block_rows;
  p.block_columns = block_columns;
  divide(blocks(p.m, block_rows) * blocks(p.n, block_columns), part, &p);
}

// Whether to leave out the zeros of a in a product; b has `b_rows` rows of `b_columns` numbers in memory.
CLONED bool leaves_zeros_out(const Product& p, Index b_rows, Index b_columns) {
  return p.m * p.n * p.k >= LARGE && p.m >= SPARSE_NARROW && p.n >= SPARSE_NARROW && p.k >= SPARSE_NARROW &&
         is_sparse(p.m, p.k, p.a, p.a_stride) && is_finite(p.b, b_rows, b_columns, p.b_stride);
}

// Computes a product by `with_onednn` or by `own`; the latter in blocks of these sizes if the product is large and
// there are several threads.
void choose(Product& p, Part own, Part with_onednn, Index block_rows, Index block_columns) {
  const bool large = p.m * p.n * p.k >= LARGE;
  // The order of oneDNN's sums may depend on the sizes of a product, so these must not depend on the number of threads.
  if (large && has_onednn() && p.m >= NARROW && p.n >= NARROW && p.k >= NARROW)
    return compute(p, with_onednn, p.n * p.k < 128 * 128 ? 1024 : 128, p.n);
  if (large && threads() > 1) return compute(p, own, block_rows, block_columns);
  compute(p, own, p.m, p.n);
}

}  // namespace

void multiply_by_transposed(Index m, Index n, Index k, const float* a, const float* b, const float* bias, float* c,
                            int activation) {
  Product product{m, n, k, a, k, b, k, bias, c, activation};
  static const auto few_rows = BEST_OF(few_rows);
  if (m <= FEW_ROWS && k >= SUM_LANES) return few_rows(product);
  if (leaves_zeros_out(product, n, k)) return multiply_sparse(m, n, k, a, k, b, k, true, bias, c, activation);
  choose(product, by_transposed, by_transposed_with_onednn, BLOCK_ROWS, TILE_COLUMNS);
}

void multiply_plain(Index m, Index n, Index k, const float* a, const float* b, Index b_stride, float* c) {
  Product product{m, n, k, a, k, b, b_stride, nullptr, c, NONE};
  if (leaves_zeros_out(product, k, n)) return multiply_sparse(m, n, k, a, k, b, b_stride, false, nullptr, c, NONE);
  choose(product, plain, plain_with_onednn, BLOCK_ROWS, TILE_COLUMNS);
}

void multiply_transposed(Index m, Index n, Index k, const float* a, const float* b, float* c) {
  Product product{m, n, k, a, m, b, n, nullptr, c, NONE};
  // Few wide blocks: each block packs its columns of a, which costs more than packing the columns of b again.
  const bool few = m <= TILE_ROWS;
  const Index rows = few ? m : round_up(blocks(m, threads()), TILE_ROWS);
  choose(product, transposed, transposed_with_onednn, rows, few ? TILE_COLUMNS : n);
}

// Uses scalar products, because most of a tile of sums would be unused.
CLONED void multiply_by_few(Index m, Index n, Index k, const float* a, const float* b, const float* bias, float* c) {
  for (Index i = 0; i < m; i++) {
    for (Index j = 0; j < n; j++) {
      const float *x = a + i * k, *y = b + j * k;
      Float8 sums[4] = {};
      Index t = 0;
      for (; t + 4 * LANES <= k; t += 4 * LANES)
        for (Index u = 0; u < 4; u++) sums[u] += load(x + t + u * LANES) * load(y + t + u * LANES);
      for (; t + LANES <= k; t += LANES) sums[0] += load(x + t) * load(y + t);
      float sum = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
      for (; t < k; t++) sum += x[t] * y[t];
      c[i * n + j] = sum + bias[j];
    }
  }
}

}  // namespace minding
