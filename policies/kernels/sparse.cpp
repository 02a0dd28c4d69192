#include "sparse.h"

#include "gemm.h"
#include "layers.h"
#include "threads.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace minding {
namespace {

// A product with a mask reads sums of four rows of b from a table of all sixteen sums, the method of the four Russians
// (Arlazarov et al., 1970; Albrecht et al., 2010, https://doi.org/10.1145/1644001.1644010): one addition instead of
// four multiplications and additions.
constexpr Index FOUR = 4, SUMS = 16;
// Columns per strip, and number of tables, one for each byte of a block: 16 KB, which stay in the first-level cache.
constexpr Index STRIP = 4 * LANES, TABLES = Mask::BYTES;

struct MaskProduct {
  const Mask& mask;
  Index n;
  const float *left, *right, *b;
  float* c;
  // Rows whose factor in `left` is not zero.
  const int32_t* rows;
  Index count;
};

ALWAYS_INLINE uint8_t four_bits(const float* x) {
#if defined(__x86_64__)
  return static_cast<uint8_t>(_mm_movemask_ps(_mm_cmpnle_ps(_mm_loadu_ps(x), _mm_setzero_ps())) << FOUR);
#else
  uint8_t bits = 0;
  for (Index i = 0; i < FOUR; i++) bits |= !(x[i] <= 0.0f) << (FOUR + i);
  return bits;
#endif
}

// The bit of row i of half a block in the four bytes of this half.
ALWAYS_INLINE constexpr int32_t bit_of(Index i) {
  return static_cast<int32_t>(uint32_t{1} << (i / FOUR * 8 + FOUR + i % FOUR));
}

// The sixteen sums of rows k to k + 3 of diag(right) b, for the columns of a strip that begins with column j.
ALWAYS_INLINE void fill_table(const MaskProduct& p, Index k, Index j, float* table) {
  const bool whole = k + FOUR <= p.mask.columns && j + STRIP <= p.n;
  for (Index w = 0; w < STRIP; w += LANES) {
    Float8 sums[SUMS];
    sums[0] = Float8{};
#pragma GCC unroll 4
    for (Index bit = 0; bit < FOUR; bit++) {
      const float* row = p.b + (k + bit) * p.n + j + w;
      Float8 numbers{};
      if (whole) numbers = load(row);
      else if (k + bit < p.mask.columns && j + w < p.n) numbers = load_some(row, p.n - j - w);
      if (whole || k + bit < p.mask.columns) numbers *= p.right[k + bit];
#pragma GCC unroll 8
      for (Index i = 0; i < 1 << bit; i++) sums[(1 << bit) + i] = sums[i] + numbers;
    }
#pragma GCC unroll 16
    for (Index i = 0; i < SUMS; i++) store(table + i * STRIP + w, sums[i]);
  }
}

// Computes the strip of the result with this number.
CLONED void strip_of_mask_product(const void* data, Index number) {
  const MaskProduct& p = *static_cast<const MaskProduct*>(data);
  static thread_local Workspace workspace;
  alignas(64) float tables[TABLES * SUMS * STRIP];
  float* sums = workspace.floats(p.count * STRIP);
  const Index j = number * STRIP, blocks = Mask::blocks(p.mask.columns), columns = smaller(STRIP, p.n - j);
  // Copies, because the compiler must assume that writes through a vector could change the fields of p.
  const Index count = p.count, n = p.n;
  const int32_t* rows = p.rows;
  const float* left = p.left;
  float* c = p.c + j;
  for (Index block = 0; block < blocks; block++) {
    for (Index g = 0; g < TABLES; g++)
      fill_table(p, block * Mask::WIDTH + g * FOUR, j, tables + g * SUMS * STRIP);
    const uint8_t* bytes = p.mask.bytes + block * p.mask.rows * TABLES;
    const bool first = block == 0;
    for (Index i = 0; i < count; i++) {
      const uint8_t* chosen = bytes + rows[i] * TABLES;
      float* out = sums + i * STRIP;
      Float8 sum[STRIP / LANES];
#pragma GCC unroll 4
      for (Index w = 0; w < STRIP / LANES; w++) sum[w] = first ? Float8{} : load(out + w * LANES);
#pragma GCC unroll 8
      for (Index g = 0; g < TABLES; g++) {
        const float* found = tables + g * SUMS * STRIP + chosen[g] * (STRIP / SUMS);
#pragma GCC unroll 4
        for (Index w = 0; w < STRIP / LANES; w++) sum[w] += load(found + w * LANES);
      }
#pragma GCC unroll 4
      for (Index w = 0; w < STRIP / LANES; w++) store(out + w * LANES, sum[w]);
    }
  }
  for (Index i = 0; i < count; i++)
    for (Index w = 0; w < columns; w += LANES)
      store_some(c + rows[i] * n + w, left[rows[i]] * load(sums + i * STRIP + w), columns - w);
}

}  // namespace

CLONED Mask mask_of(Index rows, Index columns, const float* x, uint8_t* bytes) {
  for (Index block = 0; block < Mask::blocks(columns); block++) {
    const Index first = block * Mask::WIDTH, count = smaller(Mask::WIDTH, columns - first);
    for (Index i = 0; i < rows; i++) {
      const float* row = x + i * columns + first;
      uint8_t* to = bytes + (block * rows + i) * TABLES;
      if (count == Mask::WIDTH) {
#pragma GCC unroll 8
        for (Index g = 0; g < TABLES; g++) to[g] = four_bits(row + g * FOUR);
      } else {
        float some[Mask::WIDTH] = {};
        std::memcpy(some, row, count * sizeof(float));
        for (Index g = 0; g < TABLES; g++) to[g] = four_bits(some + g * FOUR);
      }
    }
  }
  return {rows, columns, bytes};
}

CLONED Mask mask_of_transposed(Index rows, Index columns, const float* x, uint8_t* bytes) {
  constexpr Index HALF = Mask::WIDTH / 2;
  for (Index block = 0; block < Mask::blocks(rows); block++) {
    const Index first = block * Mask::WIDTH;
    for (Index j = 0; j < columns; j += LANES) {
      const Index count = smaller(LANES, columns - j);
      // The bytes of eight columns: the first four bytes of each, then the other four.
      Int8 halves[2] = {};
      for (Index half = 0; half < 2; half++) {
        const Index begin = first + half * HALF, some = smaller(HALF, rows - begin);
        const float* from = x + begin * columns + j;
        if (some == HALF && count == LANES) {
#pragma GCC unroll 16
          for (Index i = 0; i < HALF; i++)
            halves[half] |= load(from + i * columns) <= 0.0f ? Int8{} : Int8{} + bit_of(i);
        } else {
          for (Index i = 0; i < some; i++)
            halves[half] |= load_some(from + i * columns, count) <= 0.0f ? Int8{} : Int8{} + bit_of(i);
        }
      }
      int32_t pairs[2 * LANES];
      for (Index column = 0; column < LANES; column++)
        for (Index half = 0; half < 2; half++) pairs[2 * column + half] = halves[half][column];
      std::memcpy(bytes + (block * columns + j) * TABLES, pairs, count * TABLES);
    }
  }
  return {columns, rows, bytes};
}

void multiply_mask(const Mask& mask, Index n, const float* left, const float* right, const float* b, float* c) {
  static thread_local Workspace numbers;
  int32_t* rows = reinterpret_cast<int32_t*>(numbers.floats(mask.rows));
  Index count = 0;
  for (Index i = 0; i < mask.rows; i++) {
    rows[count] = static_cast<int32_t>(i);
    if (left[i] != 0.0f) count++;
    else std::memset(c + i * n, 0, n * sizeof(float));
  }
  MaskProduct product{mask, n, left, right, b, c, rows, count};
  divide((n + STRIP - 1) / STRIP, strip_of_mask_product, &product);
}

// Products that leave out zeros: an element is the sum of its other terms. Each term takes a multiplication with an
// operand from the cache, so tiles are faster if less than a third of the numbers is zero.
#ifdef FOR_PROCESSORS
namespace {

// The columns of a strip: eight vectors.
template <class Lanes>
constexpr Index STRIP_WIDTH = 8 * sizeof(typename Lanes::Vector) / sizeof(float);

// Terms per group: their rows of b, in the columns of a strip, stay in the first-level cache.
constexpr Index TERMS = 64;
// Terms are summed in groups of BLOCK, see `multiply`.
static_assert(BLOCK % TERMS == 0);
// A sample has one row of every SAMPLE rows; at most MOST_OF_THOUSAND of a thousand of its numbers may be nonzero.
constexpr Index SAMPLE = 8, MOST_OF_THOUSAND = 600;

struct SparseProduct {
  Index m, n, k;
  const float* a;
  Index a_stride;
  const float* b;
  Index b_stride;
  bool b_transposed;
  const float* bias;
  float* c;
  int activation;
  // For each row of a and each group of TERMS columns: the places of the nonzero numbers in the group
  // (m, groups, TERMS), and their number (m, groups).
  const uint8_t *places, *counts;
};

ALWAYS_INLINE Index groups_of(Index k) { return (k + TERMS - 1) / TERMS; }

// The places of the numbers chosen from eight neighbors, one place per byte.
struct Choices {
  uint64_t places[256];
  constexpr Choices() : places() {
    for (int choice = 0; choice < 256; choice++)
      for (int i = 0, count = 0; i < LANES; i++)
        if (choice >> i & 1) places[choice] |= static_cast<uint64_t>(i) << 8 * count++;
  }
};
constexpr Choices CHOICES;

// Finds the nonzero numbers.
WITH_AVX2 void find(Index m, Index k, const float* a, Index a_stride, uint8_t* places, uint8_t* counts) {
  constexpr uint64_t ONES = 0x0101010101010101;
  for (Index i = 0; i < m; i++) {
    for (Index first = 0; first < k; first += TERMS) {
      const float* x = a + i * a_stride + first;
      const Index terms = smaller(TERMS, k - first);
      Index count = 0, j = 0;
      for (; j + LANES <= terms; j += LANES) {
        const int choice = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + j), _mm256_setzero_ps(), _CMP_NEQ_UQ));
        const uint64_t eight = CHOICES.places[choice] + j * ONES;
        // Bytes copied beyond the chosen places are overwritten by the next eight, because count never exceeds j.
        std::memcpy(places + count, &eight, sizeof(eight));
        count += __builtin_popcount(choice);
      }
      for (; j < terms; j++) {
        places[count] = static_cast<uint8_t>(j);
        count += x[j] != 0.0f;
      }
      *counts++ = static_cast<uint8_t>(count);
      places += TERMS;
    }
  }
}

// panel (TERMS, width) = rows of b, for the columns of the strip that begins with column j, padded with zeros.
template <Index width>
ALWAYS_INLINE void pack_strip(const SparseProduct& p, Index k, Index terms, Index j, float* panel) {
  const Index columns = smaller(width, p.n - j);
  if (!p.b_transposed) {
    for (Index t = 0; t < terms; t++) {
      std::memcpy(panel + t * width, p.b + (k + t) * p.b_stride + j, columns * sizeof(float));
      std::memset(panel + t * width + columns, 0, (width - columns) * sizeof(float));
    }
    return;
  }
  for (Index first = 0; first < width; first += LANES) {
    const float* from = p.b + (j + first) * p.b_stride + k;
    float* to = panel + first;
    Index t = 0;
    if (first + LANES <= columns)
      for (; t + LANES <= terms; t += LANES) transpose8(from + t, p.b_stride, to + t * width, width);
    for (; t < terms; t++)
      for (Index w = 0; w < LANES; w++) to[t * width + w] = first + w < columns ? from[w * p.b_stride + t] : 0.0f;
  }
}

template <class Lanes>
ALWAYS_INLINE void strip_of_sparse_product(const SparseProduct& p, Index number) {
  typedef typename Lanes::Vector Vector;
  constexpr Index width = STRIP_WIDTH<Lanes>;
  constexpr Index LENGTH = sizeof(Vector) / sizeof(float), VECTORS = width / LENGTH;
  static thread_local Workspace workspace;
  alignas(64) float panel[TERMS * width];
  float* sums = workspace.floats(p.m * width);
  const Index j = number * width, columns = smaller(width, p.n - j), groups = groups_of(p.k);
  // Copies, because the compiler must assume that writes through a vector could change the fields of p.
  const Index m = p.m, n = p.n, a_stride = p.a_stride;
  const float* a = p.a;
  const uint8_t *places = p.places, *counts = p.counts;
  float* result = p.c + j;
  float begin[width] = {};
  if (p.bias != nullptr) std::memcpy(begin, p.bias + j, columns * sizeof(float));
  for (Index g = 0; g < groups; g++) {
    const Index k = g * TERMS;
    const bool begins = k % BLOCK == 0, ends = g + 1 == groups || (k + TERMS) % BLOCK == 0;
    const bool relu = p.activation == RELU && g + 1 == groups;
    pack_strip<width>(p, k, smaller(TERMS, p.k - k), j, panel);
    for (Index i = 0; i < m; i++) {
      const float* x = a + i * a_stride + k;
      const uint8_t* place = places + (i * groups + g) * TERMS;
      const Index count = counts[i * groups + g];
      float* out = sums + i * width;
      Vector sum[VECTORS];
#pragma GCC unroll 8
      for (Index v = 0; v < VECTORS; v++)
        sum[v] = begins ? Vector{} : *reinterpret_cast<const Vector*>(out + v * LENGTH);
      for (Index t = 0; t < count; t++) {
        const float factor = x[place[t]];
        const float* row = panel + place[t] * width;
#pragma GCC unroll 8
        for (Index v = 0; v < VECTORS; v++) sum[v] += factor * *reinterpret_cast<const Vector*>(row + v * LENGTH);
      }
      const float* before = k < BLOCK ? begin : result + i * n;
      const bool direct = ends && columns == width;
      if (direct) {
#pragma GCC unroll 8
        for (Index v = 0; v < VECTORS; v++) {
          sum[v] += *reinterpret_cast<const Vector*>(before + v * LENGTH);
          if (relu) sum[v] = sum[v] < 0.0f ? Vector{} : sum[v];
        }
        out = result + i * n;
      }
#pragma GCC unroll 8
      for (Index v = 0; v < VECTORS; v++) *reinterpret_cast<Vector*>(out + v * LENGTH) = sum[v];
      if (ends && !direct) {
        float* c = result + i * n;
        for (Index w = 0; w < columns; w += LANES)
          store_some(c + w, load(out + w) + load_some(before + w, columns - w), columns - w);
      }
    }
  }
  if (p.activation == RELU && columns < width) change(m, columns, result, n, Relu::of);
  if (p.activation == TANH) change(m, columns, result, n, Tanh::of);
}

WITH_AVX512 void strip_with_avx512(const void* data, Index number) {
  strip_of_sparse_product<Sixteen>(*static_cast<const SparseProduct*>(data), number);
}

WITH_AVX2 void strip_with_avx2(const void* data, Index number) {
  strip_of_sparse_product<Eight>(*static_cast<const SparseProduct*>(data), number);
}

}  // namespace

bool is_sparse(Index m, Index k, const float* a, Index a_stride) {
  static const bool usable = has_avx2();
  if (!usable) return false;
  Index found = 0, looked = 0;
  for (Index i = 0; i < m; i += SAMPLE, looked += k)
    for (Index j = 0; j < k; j++) found += a[i * a_stride + j] != 0.0f;
  return found * 1000 <= looked * MOST_OF_THOUSAND;
}

void multiply_sparse(Index m, Index n, Index k, const float* a, Index a_stride, const float* b, Index b_stride,
                     bool b_transposed, const float* bias, float* c, int activation) {
  static const bool wide = has_avx512();
  static thread_local Workspace workspace;
  const Index groups = m * groups_of(k);
  uint8_t* places = reinterpret_cast<uint8_t*>(workspace.floats(groups * (TERMS + 1) / sizeof(float) + 1));
  uint8_t* counts = places + groups * TERMS;
  find(m, k, a, a_stride, places, counts);
  SparseProduct product{m, n, k, a, a_stride, b, b_stride, b_transposed, bias, c, activation, places, counts};
  const Index width = wide ? STRIP_WIDTH<Sixteen> : STRIP_WIDTH<Eight>;
  divide((n + width - 1) / width, wide ? strip_with_avx512 : strip_with_avx2, &product);
}
#else
bool is_sparse(Index, Index, const float*, Index) { return false; }
void multiply_sparse(Index, Index, Index, const float*, Index, const float*, Index, bool, const float*, float*, int) {
  std::abort();
}
#endif

}  // namespace minding
