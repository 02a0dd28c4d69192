// The inner loops of convolutions without patches. Filters are the lanes of vectors. Some sums stay in registers, and
// each of their terms takes one multiplication with a number of the image, which stays in the first-level cache.
#include "direct.h"

#include "custom.h"
#include "gemm.h"

namespace minding {
namespace {

// Sums that stay in registers: as many as hide the latency of an addition.
template <class Lanes>
constexpr int TILE = sizeof(typename Lanes::Vector) == WIDTH * sizeof(float) ? 8 : 6;

template <class Lanes, int count>
ALWAYS_INLINE void some_places(const Taps& taps, Index first, const float* x, const float* weights, const float* bias,
                               bool relu, float* out) {
  typedef typename Lanes::Vector Vector;
  constexpr int VECTORS = WIDTH * sizeof(float) / sizeof(Vector);
  Vector sum[count][VECTORS];
  const float* from[count];
#pragma GCC unroll 8
  for (int p = 0; p < count; p++) {
    from[p] = x + taps.place[first + p];
    for (int v = 0; v < VECTORS; v++) sum[p][v] = bias ? reinterpret_cast<const Vector*>(bias)[v] : Vector{};
  }
  const int32_t* term = taps.term;
  const Index terms = taps.terms;
  for (Index t = 0; t < terms; t++, weights += WIDTH) {
    const Index at = term[t];
#pragma GCC unroll 8
    for (int p = 0; p < count; p++)
      for (int v = 0; v < VECTORS; v++) sum[p][v] += from[p][at] * reinterpret_cast<const Vector*>(weights)[v];
  }
#pragma GCC unroll 8
  for (int p = 0; p < count; p++) {
    Vector* to = reinterpret_cast<Vector*>(out + taps.result[first + p]);
    for (int v = 0; v < VECTORS; v++) to[v] = relu ? (sum[p][v] < 0.0f ? Vector{} : sum[p][v]) : sum[p][v];
  }
}

template <class Lanes>
ALWAYS_INLINE void all_places(const Taps& taps, const float* x, const float* weights, const float* bias, bool relu,
                              float* out) {
  constexpr int tile = TILE<Lanes>;
  const Index places = taps.places;
  Index p = 0;
  for (; p + tile <= places; p += tile) some_places<Lanes, tile>(taps, p, x, weights, bias, relu, out);
  // The last tile may compute some places again.
  if (p < places && places >= tile) return some_places<Lanes, tile>(taps, places - tile, x, weights, bias, relu, out);
  for (; p < places; p++) some_places<Lanes, 1>(taps, p, x, weights, bias, relu, out);
}

template <class Lanes, int count>
ALWAYS_INLINE void some_terms(const Taps& taps, Index first, const float* x, const float* dout, Index filters,
                              float* sums) {
  typedef typename Lanes::Vector Vector;
  constexpr int VECTORS = WIDTH * sizeof(float) / sizeof(Vector);
  Vector sum[count][VECTORS];
  const float* from[count];
#pragma GCC unroll 8
  for (int t = 0; t < count; t++) {
    from[t] = x + taps.term[first + t];
    for (int v = 0; v < VECTORS; v++) sum[t][v] = reinterpret_cast<const Vector*>(sums + (first + t) * WIDTH)[v];
  }
  const int32_t* place = taps.place;
  const Index places = taps.places;
  for (Index p = 0; p < places; p++, dout += filters) {
    const Index at = place[p];
#pragma GCC unroll 8
    for (int t = 0; t < count; t++)
      for (int v = 0; v < VECTORS; v++) sum[t][v] += from[t][at] * reinterpret_cast<const Vector*>(dout)[v];
  }
#pragma GCC unroll 8
  for (int t = 0; t < count; t++)
    for (int v = 0; v < VECTORS; v++) reinterpret_cast<Vector*>(sums + (first + t) * WIDTH)[v] = sum[t][v];
}

template <class Lanes>
ALWAYS_INLINE void all_terms(const Taps& taps, const float* x, const float* dout, Index filters, float* sums) {
  constexpr int tile = TILE<Lanes>;
  Index t = 0;
  for (; t + tile <= taps.terms; t += tile) some_terms<Lanes, tile>(taps, t, x, dout, filters, sums);
  for (; t + tile / 2 <= taps.terms; t += tile / 2) some_terms<Lanes, tile / 2>(taps, t, x, dout, filters, sums);
  for (; t < taps.terms; t++) some_terms<Lanes, 1>(taps, t, x, dout, filters, sums);
}

#define DEFINE_LOOPS(suffix, target, Lanes)                                                                      \
  target void places_##suffix(const Taps& taps, const float* x, const float* weights, const float* bias,         \
                              bool relu, float* out) {                                                           \
    all_places<Lanes>(taps, x, weights, bias, relu, out);                                                        \
  }                                                                                                              \
  target void terms_##suffix(const Taps& taps, const float* x, const float* dout, Index filters, float* sums) {  \
    all_terms<Lanes>(taps, x, dout, filters, sums);                                                              \
  }

DEFINE_LOOPS(anywhere, , Eight)
#ifdef FOR_PROCESSORS
DEFINE_LOOPS(with_avx2, WITH_AVX2, Eight)
DEFINE_LOOPS(with_avx512, WITH_AVX512, Sixteen)
#endif

}  // namespace

void add_taps(const Taps& taps, const float* x, const float* weights, const float* bias, bool relu, float* out) {
  static const auto best = BEST_OF(places);
  best(taps, x, weights, bias, relu, out);
}

void add_tap_gradients(const Taps& taps, const float* x, const float* dout, Index filters, float* sums) {
  static const auto best = BEST_OF(terms);
  best(taps, x, dout, filters, sums);
}

CLONED void turn(Index rows, Index columns, const float* from, float* to, Index stride) {
  Index i = 0;
  for (; i + LANES <= rows; i += LANES) {
    Index j = 0;
    for (; j + LANES <= columns; j += LANES) transpose8(from + i * columns + j, columns, to + j * stride + i, stride);
    for (; j < columns; j++)
      for (Index k = i; k < i + LANES; k++) to[j * stride + k] = from[k * columns + j];
  }
  for (; i < rows; i++)
    for (Index j = 0; j < columns; j++) to[j * stride + i] = from[i * columns + j];
}

}  // namespace minding
