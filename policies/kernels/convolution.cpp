// Convolutions as kernels of a MindSpore graph: the product of an image's patches with the weights, bias and ReLU in
// one kernel, and two kernels for the gradient. A transposed convolution exchanges the parts: what is the gradient of
// the images there is its result, and its gradient is a convolution.
//
// Whole vectors of filters are computed from the images themselves (`direct.h`). Otherwise, the patches of some images at
// a time are written as rows of a matrix that stays in the second-level cache (Chellapilla et al., 2006,
// https://inria.hal.science/inria-00112631), and oneDNN or this package's code multiplies it.
#include "custom.h"
#include "direct.h"
#include "gemm.h"
#include "layers.h"
#include "onednn.h"
#include "threads.h"

namespace minding {
namespace {

// Numbers of a matrix of patches that stay in the second-level cache.
constexpr Index CACHED = 1 << 17;
// Parts in which the gradient of the parameters is summed; fixed, so that sums do not depend on the number of threads.
constexpr Index PARTS = 8;
// Below this, oneDNN's preparations take more time than it saves.
constexpr Index NARROW = 16;
// Weights up to which a convolution takes no patches: those of some filters stay in the first-level cache.
constexpr Index DIRECT = 1 << 13;

// Of images (B, C, H, W), or (B, H, W, C) if `channels_last`, to (B, C, H, W), or (B, H, W, C) if `result_last`.
struct Shape {
  Index batch, channels, height, width, filters, kernel, stride, padding, rows, columns;
  bool channels_last, result_last, relu, bytes;

  // geometry int32 (5,): stride, padding, channels last, result with channels last, ReLU
  ALWAYS_INLINE Shape(const Call& call, int geometry, int x, int weight) {
    const int32_t* numbers = call.integers(geometry);
    const int64_t *image = call.shapes[x], *of_weight = call.shapes[weight];
    stride = numbers[0], padding = numbers[1];
    channels_last = numbers[2], result_last = numbers[3], relu = numbers[4];
    bytes = std::strcmp(call.types[x], "uint8") == 0;
    batch = image[0], channels = of_weight[1], filters = of_weight[0], kernel = of_weight[2];
    height = image[channels_last ? 1 : 2], width = image[channels_last ? 2 : 3];
    rows = (height + 2 * padding - kernel) / stride + 1, columns = (width + 2 * padding - kernel) / stride + 1;
  }
  ALWAYS_INLINE Index pixels() const { return channels * height * width; }
  ALWAYS_INLINE Index places() const { return rows * columns; }
  // The terms of a patch that lie together in an image.
  ALWAYS_INLINE Index line() const { return channels_last ? kernel * channels : kernel; }
  ALWAYS_INLINE Index terms() const { return channels * kernel * kernel; }
  // Images whose patches stay in the cache together.
  ALWAYS_INLINE Index block() const {
    const Index fitting = CACHED / (places() * terms());
    return fitting < 1 ? 1 : smaller(fitting, batch);
  }
};

typedef uint8_t Byte8 __attribute__((vector_size(8), aligned(1), may_alias));

// Bytes as numbers in [0, 1].
ALWAYS_INLINE void to_floats(const uint8_t* from, Index count, float* to) {
  Index i = 0;
  for (; i + LANES <= count; i += LANES)
    store(to + i, __builtin_convertvector(*reinterpret_cast<const Byte8*>(from + i), Float8) * (1.0f / 255.0f));
  for (; i < count; i++) to[i] = static_cast<float>(from[i]) * (1.0f / 255.0f);
}

// Copies at least `count` numbers in whole vectors: up to LANES - 1 more are read and written.
ALWAYS_INLINE void copy_roughly(const float* from, Index count, float* to) {
  for (Index i = 0; i < count; i += LANES) store(to + i, load(from + i));
}

// The patches of an image as rows of a matrix (places, terms). The terms of a patch are in the order of the weights,
// (C, K, K), or (K, K, C) if channels are last. Up to LANES - 1 numbers after the patches are overwritten, and, if a
// line is not a whole number of vectors, read after the image.
ALWAYS_INLINE void take_patches(const Shape shape, const float* image, float* patches) {
  // In registers: the compiler has to assume that a vector that is written changes any memory.
  const Index kernel = shape.kernel, stride = shape.stride, padding = shape.padding, line = shape.line();
  const Index height = shape.height, width = shape.width, rows = shape.rows, columns = shape.columns;
  // The pixels that lie together in memory: of a row of the patch, of one channel or of all.
  const Index depth = shape.channels_last ? shape.channels : 1, planes = shape.channels_last ? 1 : shape.channels;
  const Index skip = width * depth;
  for (Index y = 0; y < rows; y++) {
    for (Index x = 0; x < columns; x++) {
      const Index top = y * stride - padding, left = x * stride - padding;
      const bool whole = top >= 0 && left >= 0 && top + kernel <= height && left + kernel <= width;
      const Index skipped = left < 0 ? -left : 0, end = smaller(kernel, width - left);
      for (Index c = 0; c < planes; c++) {
        const float* from = image + ((c * height + top) * width + left) * depth;
        if (whole && line <= LANES) {
          for (Index i = 0; i < kernel; i++, patches += line, from += skip) store(patches, load(from));
        } else if (whole) {
          for (Index i = 0; i < kernel; i++, patches += line, from += skip) copy_roughly(from, line, patches);
        } else {
          for (Index i = 0; i < kernel; i++, patches += line, from += skip) {
            std::memset(patches, 0, line * sizeof(float));
            if (top + i >= 0 && top + i < height)
              std::memcpy(patches + skipped * depth, from + skipped * depth, (end - skipped) * depth * sizeof(float));
          }
        }
      }
    }
  }
}

// Adds rows of patches to the pixels from which `take_patches` takes them.
ALWAYS_INLINE void add_patches(const Shape s, const float* patches, float* image) {
  const Index kernel = s.kernel, height = s.height, width = s.width, columns = s.columns;
  const Index depth = s.channels_last ? s.channels : 1, planes = s.channels_last ? 1 : s.channels;
  for (Index y = 0; y < s.rows; y++) {
    for (Index x = 0; x < columns; x++) {
      const Index top = y * s.stride - s.padding, left = x * s.stride - s.padding;
      const Index skipped = left < 0 ? -left : 0, end = smaller(kernel, width - left);
      for (Index c = 0; c < planes; c++) {
        for (Index i = 0; i < kernel; i++, patches += kernel * depth) {
          const Index row = top + i;
          if (row < 0 || row >= height) continue;
          float* to = image + ((c * height + row) * width + left + skipped) * depth;
          const float* from = patches + skipped * depth;
          const Index count = (end - skipped) * depth;
          Index j = 0;
          for (; j + LANES <= count; j += LANES) store(to + j, load(to + j) + load(from + j));
          for (; j < count; j++) to[j] += from[j];
        }
      }
    }
  }
}

// from (O, C, K, K) -> to (O, K, K, C), or the other way round.
ALWAYS_INLINE void turn_weights(const Shape& s, const float* from, float* to, bool back) {
  const Index area = s.kernel * s.kernel;
  for (Index o = 0; o < s.filters; o++, from += s.terms(), to += s.terms())
    for (Index c = 0; c < s.channels; c++)
      for (Index i = 0; i < area; i++) {
        if (back) to[c * area + i] = from[i * s.channels + c];
        else to[i * s.channels + c] = from[c * area + i];
      }
}

// The weights in the order of the terms of a patch.
ALWAYS_INLINE const float* weights_of_patches(const Shape& s, const float* weight) {
  static thread_local Workspace workspace;
  if (!s.channels_last || s.kernel == 1) return weight;
  float* turned = workspace.floats(s.filters * s.terms());
  turn_weights(s, weight, turned, false);
  return turned;
}

ALWAYS_INLINE bool by_onednn(const Shape& s) { return has_onednn() && s.filters >= NARROW && s.terms() >= NARROW; }

// c (m, n) = a (m, k) b^T for b (n, k)
CLONED void by_transposed(Index m, Index n, Index k, const float* a, const float* b, float* c) {
  multiply(m, n, k, Matrix<false>{a, k}, Matrix<true>{b, k}, nullptr, c, n, [](Index, Index, float*, Index) {});
}

// c (m, n) = a (m, k) b (k, n)
CLONED void plain(Index m, Index n, Index k, const float* a, const float* b, float* c) {
  multiply(m, n, k, Matrix<false>{a, k}, Matrix<false>{b, n}, nullptr, c, n, [](Index, Index, float*, Index) {});
}

// c (m, n) = a^T b for a (k, m), b (k, n)
CLONED void transposed(Index m, Index n, Index k, const float* a, const float* b, float* c) {
  multiply(m, n, k, Matrix<true>{a, m}, Matrix<false>{b, n}, nullptr, c, n, [](Index, Index, float*, Index) {});
}

struct Work {
  Shape shape;
  const void* x;
  // In the order of the terms of a patch.
  const float* weight;
  const float* bias;
  const float* dout;
  const float* out;
  float* result;
  float* dbias;
  Index block;
  // The result of a transposed convolution with ReLU: its gradient counts where that is positive.
  const float* mask = nullptr;
  // Whether a transposed convolution applies a ReLU.
  bool relu = false;
  // Without patches: the distances, and `weight` packed for them. No terms: patches are taken.
  Taps taps = {};

  // Pointer to image `first`.
  ALWAYS_INLINE const float* floats(Index first) const {
    return static_cast<const float*>(x) + first * shape.pixels();
  }
  ALWAYS_INLINE const uint8_t* pixels(Index first) const {
    return static_cast<const uint8_t*>(x) + first * shape.pixels();
  }
};

// Completes the work on results, or on the gradient of the weights if `weight` is null.
ALWAYS_INLINE void choose_way(const float* weight, Work& work) {
  static thread_local Workspace distances, packed;
  const Shape& s = work.shape;
  const Index terms = s.terms(), places = s.places();
  if (s.filters % WIDTH || s.filters * terms > DIRECT) {
    work.weight = weight ? weights_of_patches(s, weight) : nullptr;
    return;
  }
  // The images get a border of zeros.
  const Index depth = s.channels_last ? s.channels : 1, row = (s.width + 2 * s.padding) * depth;
  const Index plane = s.channels_last ? 1 : (s.height + 2 * s.padding) * row;
  int32_t* term = reinterpret_cast<int32_t*>(distances.floats(terms + 2 * places));
  int32_t *place = term + terms, *result = place + places;
  work.taps = {terms, places, term, place, result};
  for (Index c = 0; c < s.channels; c++)
    for (Index i = 0; i < s.kernel; i++)
      for (Index j = 0; j < s.kernel; j++) *term++ = c * plane + i * row + j * depth;
  for (Index y = 0; y < s.rows; y++)
    for (Index x = 0; x < s.columns; x++) *place++ = (y * row + x * depth) * s.stride;
  for (Index p = 0; p < places; p++) *result++ = p * s.filters;
  if (weight == nullptr) return;
  float* to = packed.floats(s.filters * terms);
  for (Index o = 0; o < s.filters; o += WIDTH) turn(WIDTH, terms, weight + o * terms, to + o * terms, WIDTH);
  work.weight = to;
}

// The numbers of an image, or, with a mask, of the gradient before a ReLU. With `copied`, up to LANES - 1 numbers may
// be read after them.
ALWAYS_INLINE const float* numbers_of(const Work& work, Index index, bool copied) {
  static thread_local Workspace workspace;
  const Shape& s = work.shape;
  const float* image = work.floats(index);
  if (!s.bytes && !work.mask && !copied) return image;
  float* numbers = workspace.floats(s.pixels() + LANES);
  if (s.bytes) to_floats(work.pixels(index), s.pixels(), numbers);
  else if (work.mask) change_before<Relu>(image, work.mask + index * s.pixels(), s.pixels(), numbers);
  else std::memcpy(numbers, image, s.pixels() * sizeof(float));
  return numbers;
}

// Planes (rows, columns, depth) in planes of zeros (down, across, depth), `border` rows and columns from their start.
ALWAYS_INLINE const float* with_border(Index planes, Index rows, Index columns, Index depth, Index border, Index down,
                                       Index across, const float* from) {
  static thread_local Workspace workspace;
  if (rows == down && columns == across) return from;
  const Index size = down * across * depth;
  float* to = workspace.floats(planes * size);
  std::memset(to, 0, planes * size * sizeof(float));
  for (Index c = 0; c < planes; c++)
    for (Index y = 0; y < rows; y++, from += columns * depth)
      std::memcpy(to + c * size + ((y + border) * across + border) * depth, from, columns * depth * sizeof(float));
  return to;
}

// The image with its border.
ALWAYS_INLINE const float* image_of(const Work& work, Index index) {
  const Shape& s = work.shape;
  const Index planes = s.channels_last ? 1 : s.channels, added = 2 * s.padding;
  return with_border(planes, s.height, s.width, s.channels / planes, s.padding, s.height + added, s.width + added,
                     numbers_of(work, index, false));
}

ALWAYS_INLINE float* patches_of(const Work& work, Index first, Index count) {
  static thread_local Workspace workspace;
  const Shape& s = work.shape;
  const Index size = s.places() * s.terms();
  float* patches = workspace.floats(work.block * size + LANES);
  for (Index i = 0; i < count; i++)
    take_patches(s, numbers_of(work, first + i, s.line() % LANES != 0), patches + i * size);
  return patches;
}

// The gradient before the ReLU of some images, as rows (count * places, O).
ALWAYS_INLINE const float* before_relu(const Work& work, Index first, Index count) {
  static thread_local Workspace workspace;
  const Shape& s = work.shape;
  const Index places = s.places(), size = places * s.filters;
  const float *dout = work.dout + first * size, *out = work.out + first * size;
  if (s.result_last && !s.relu) return dout;
  float* before = workspace.floats(work.block * size);
  if (s.relu) change_before<Relu>(dout, out, count * size, before);
  if (s.result_last) return before;
  static thread_local Workspace turned;
  float* result = turned.floats(work.block * size);
  for (Index i = 0; i < count; i++)
    turn(s.filters, places, (s.relu ? before : dout) + i * size, result + i * size, s.filters);
  return result;
}

CLONED void forward_part(const void* data, Index number) {
  static thread_local Workspace workspace;
  const Work& work = *static_cast<const Work*>(data);
  const Shape& s = work.shape;
  const Index first = number * work.block, count = smaller(work.block, s.batch - first), places = s.places();
  const Index size = places * s.filters;
  float* result = work.result + first * size;
  float* product = s.result_last ? result : workspace.floats(work.block * size);
  for (Index i = 0; i < count && work.taps.terms; i++) {
    const float* image = image_of(work, first + i);
    float* rows = s.result_last ? result + i * size : product;
    for (Index o = 0; o < s.filters; o += WIDTH)
      add_taps(work.taps, image, work.weight + o * s.terms(), work.bias ? work.bias + o : nullptr, s.relu, rows + o);
    if (!s.result_last) turn(places, s.filters, rows, result + i * size, places);
  }
  if (work.taps.terms) return;
  const float* patches = patches_of(work, first, count);
  if (by_onednn(s))
    onednn_multiply('N', 'T', count * places, s.filters, s.terms(), patches, s.terms(), work.weight, s.terms(),
                    product);
  else by_transposed(count * places, s.filters, s.terms(), patches, work.weight, product);
  for (Index row = 0; work.bias && row < count * places; row++) {
    float* of_row = product + row * s.filters;
    Index o = 0;
    for (; o + LANES <= s.filters; o += LANES) {
      const Float8 sum = load(of_row + o) + load(work.bias + o);
      store(of_row + o, s.relu ? Relu::of(sum) : sum);
    }
    for (; o < s.filters; o++) {
      const float sum = of_row[o] + work.bias[o];
      of_row[o] = s.relu && sum < 0.0f ? 0.0f : sum;
    }
  }
  if (s.result_last) return;
  for (Index i = 0; i < count; i++) turn(places, s.filters, product + i * size, result + i * size, places);
}

// Adds the bias to an image, and applies the ReLU of a transposed convolution.
ALWAYS_INLINE void finish_image(const Shape& s, const float* bias, bool relu, float* image) {
  const Index planes = s.channels_last ? 1 : s.channels, size = s.height * s.width;
  const Index depth = s.channels / planes;
  for (Index c = 0; c < planes; c++)
    for (Index p = 0; p < size; p++)
      for (Index d = 0; d < depth; d++, image++) {
        const float sum = *image + bias[c + d];
        *image = relu && sum < 0.0f ? 0.0f : sum;
      }
}

CLONED void input_gradient_part(const void* data, Index number) {
  static thread_local Workspace workspace;
  const Work& work = *static_cast<const Work*>(data);
  const Shape& s = work.shape;
  const Index first = number * work.block, count = smaller(work.block, s.batch - first), places = s.places();
  const float* before = before_relu(work, first, count);
  float* patches = workspace.floats(work.block * places * s.terms());
  if (by_onednn(s))
    onednn_multiply('N', 'N', count * places, s.terms(), s.filters, before, s.filters, work.weight, s.terms(),
                    patches);
  else plain(count * places, s.terms(), s.filters, before, work.weight, patches);
  float* result = work.result + first * s.pixels();
  std::memset(result, 0, count * s.pixels() * sizeof(float));
  for (Index i = 0; i < count; i++) {
    add_patches(s, patches + i * places * s.terms(), result + i * s.pixels());
    if (work.bias) finish_image(s, work.bias, work.relu, result + i * s.pixels());
  }
}

// The gradients of the parameters, summed over one of the PARTS of the batch.
CLONED void parameter_gradient_part(const void* data, Index number) {
  static thread_local Workspace workspace;
  const Work& work = *static_cast<const Work*>(data);
  const Shape& s = work.shape;
  const Index size = s.filters * s.terms(), places = s.places(), blocks = (s.batch + work.block - 1) / work.block;
  float *dweight = work.result + number * size, *dbias = work.dbias + number * s.filters;
  std::memset(dweight, 0, size * sizeof(float));
  std::memset(dbias, 0, s.filters * sizeof(float));
  for (Index block = blocks * number / PARTS; block < blocks * (number + 1) / PARTS; block++) {
    const Index first = block * work.block, count = smaller(work.block, s.batch - first);
    const float* before = before_relu(work, first, count);
    sum_more_rows(count * places, s.filters, before, dbias);
    for (Index i = 0; i < count && work.taps.terms; i++) {
      const float* image = image_of(work, first + i);
      for (Index o = 0; o < s.filters; o += WIDTH)
        add_tap_gradients(work.taps, image, before + i * places * s.filters + o, s.filters,
                          dweight + o * s.terms());
    }
    if (work.taps.terms) continue;
    const float* patches = patches_of(work, first, count);
    float* product = workspace.floats(size);
    if (by_onednn(s))
      onednn_multiply('T', 'N', s.filters, s.terms(), count * places, before, s.filters, patches, s.terms(), product);
    else transposed(s.filters, s.terms(), count * places, before, patches, product);
    Index i = 0;
    for (; i + LANES <= size; i += LANES) store(dweight + i, load(dweight + i) + load(product + i));
    for (; i < size; i++) dweight[i] += product[i];
  }
}

// geometry (5,), x (B, C, H, W) uint8 or float32, weight (O, C, K, K), bias (O,) -> result
ALWAYS_INLINE int convolve(const Call& call) {
  const Shape shape(call, 0, 1, 2);
  if (shape.batch == 0) return 0;
  Work work{shape, call.data[1], nullptr, call.floats(3), nullptr, nullptr, call.floats(4), nullptr, shape.block()};
  choose_way(call.floats(2), work);
  divide((shape.batch + work.block - 1) / work.block, forward_part, &work);
  return 0;
}

// geometry (5,), gradient of the result, result, x, weight -> gradient of x, float32
ALWAYS_INLINE int convolve_input_gradient(const Call& call) {
  const Shape shape(call, 0, 3, 4);
  if (shape.batch == 0) return 0;
  const Work work{shape, nullptr, weights_of_patches(shape, call.floats(4)), nullptr, call.floats(1), call.floats(2),
                  call.floats(5), nullptr, shape.block()};
  divide((shape.batch + work.block - 1) / work.block, input_gradient_part, &work);
  return 0;
}

// The gradient of the weights in their own order. The sums over all rows of each filter are left in `work.dbias`.
ALWAYS_INLINE void sum_parameter_gradients(const Work& work, float* dweight) {
  const Shape& shape = work.shape;
  const Index size = shape.filters * shape.terms();
  float* sums = work.result;
  divide(PARTS, parameter_gradient_part, &work);
  for (Index part = 1; part < PARTS; part++) {
    for (Index i = 0; i < size; i++) sums[i] += sums[part * size + i];
    for (Index o = 0; o < shape.filters; o++) work.dbias[o] += work.dbias[part * shape.filters + o];
  }
  if (work.taps.terms)
    for (Index o = 0; o < shape.filters; o += WIDTH)
      turn(shape.terms(), WIDTH, sums + o * shape.terms(), dweight + o * shape.terms(), shape.terms());
  else if (shape.channels_last && shape.kernel > 1) turn_weights(shape, sums, dweight, true);
  else std::memcpy(dweight, sums, size * sizeof(float));
}

// The sums of each channel of images, where the mask is positive.
ALWAYS_INLINE void sum_images(const Shape& s, const float* images, const float* mask, float* sums) {
  const Index planes = s.channels_last ? 1 : s.channels, size = s.height * s.width;
  const Index depth = s.channels / planes;
  std::memset(sums, 0, s.channels * sizeof(float));
  Index at = 0;
  for (Index i = 0; i < s.batch; i++)
    for (Index c = 0; c < planes; c++) {
      float plane[1] = {0.0f};
      float* to = depth == 1 ? plane : sums;
      for (Index p = 0; p < size; p++)
        for (Index d = 0; d < depth; d++, at++) to[d] += mask && mask[at] <= 0.0f ? 0.0f : images[at];
      if (depth == 1) sums[c] += plane[0];
    }
}

// geometry (5,), gradient of the result, result, x, weight -> gradients of weight and bias
ALWAYS_INLINE int convolve_parameter_gradient(const Call& call) {
  static thread_local Workspace workspace;
  const Shape shape(call, 0, 3, 4);
  const Index size = shape.filters * shape.terms();
  float *dweight = call.floats(5), *dbias = call.floats(6);
  float* sums = workspace.floats(PARTS * (size + shape.filters));
  Work work{shape, call.data[3], nullptr, nullptr, call.floats(1), call.floats(2),
            sums, sums + PARTS * size, shape.batch ? shape.block() : 1};
  choose_way(nullptr, work);
  sum_parameter_gradients(work, dweight);
  std::memcpy(dbias, work.dbias, shape.filters * sizeof(float));
  return 0;
}

// geometry (5,), x (B, rows, columns, O), or (B, O, rows, columns), weight (O, C, K, K), bias (C,) -> images
ALWAYS_INLINE int convolve_transposed(const Call& call) {
  Shape shape(call, 0, 4, 2);
  const bool relu = shape.relu;
  shape.relu = false;
  if (shape.batch == 0) return 0;
  const Work work{shape, nullptr, weights_of_patches(shape, call.floats(2)), call.floats(3), call.floats(1), nullptr,
                  call.floats(4), nullptr, shape.block(), nullptr, relu};
  divide((shape.batch + work.block - 1) / work.block, input_gradient_part, &work);
  return 0;
}

// geometry (5,), gradient of the images, images, x, weight -> gradient of x
ALWAYS_INLINE int convolve_transposed_input_gradient(const Call& call) {
  Shape shape(call, 0, 1, 4);
  const float* mask = shape.relu ? call.floats(2) : nullptr;
  shape.relu = false;
  if (shape.batch == 0) return 0;
  Work work{shape, call.data[1], nullptr, nullptr, nullptr, nullptr,
            call.floats(5), nullptr, shape.block(), mask};
  choose_way(call.floats(4), work);
  divide((shape.batch + work.block - 1) / work.block, forward_part, &work);
  return 0;
}

// geometry (5,), gradient of the images, images, x, weight -> gradients of weight and bias
ALWAYS_INLINE int convolve_transposed_parameter_gradient(const Call& call) {
  static thread_local Workspace workspace;
  Shape shape(call, 0, 1, 4);
  const float* mask = shape.relu ? call.floats(2) : nullptr;
  shape.relu = false;
  const Index size = shape.filters * shape.terms();
  float* sums = workspace.floats(PARTS * (size + shape.filters));
  Work work{shape, call.data[1], nullptr, nullptr, call.floats(3), nullptr,
            sums, sums + PARTS * size, shape.batch ? shape.block() : 1, mask};
  choose_way(nullptr, work);
  sum_parameter_gradients(work, call.floats(5));
  sum_images(shape, call.floats(1), mask, call.floats(6));
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(convolve, minding::convolve)
DEFINE_KERNEL(convolve_input_gradient, minding::convolve_input_gradient)
DEFINE_KERNEL(convolve_parameter_gradient, minding::convolve_parameter_gradient)
DEFINE_KERNEL(convolve_transposed, minding::convolve_transposed)
DEFINE_KERNEL(convolve_transposed_input_gradient, minding::convolve_transposed_input_gradient)
DEFINE_KERNEL(convolve_transposed_parameter_gradient, minding::convolve_transposed_parameter_gradient)
