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
