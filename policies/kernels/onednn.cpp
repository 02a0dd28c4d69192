// Products of matrices by oneDNN, which is part of MindSpore's wheel.
//
// The library is loaded when the process is prepared, and not linked. So the choice between oneDNN and this package's
// code is made before the first product, and depends only on the processor and the settings. oneDNN computes in the
// calling thread, since it is built for a thread pool and gets none.
#include "onednn.h"

#include <dlfcn.h>
#include <signal.h>

#include <atomic>

namespace minding {
namespace {

typedef int (*Sgemm)(char, char, Index, Index, Index, float, const float*, Index, const float*, Index, float, float*,
                     Index);
Sgemm sgemm = nullptr;
std::atomic<Index> products{0};

// Blocks signals in this thread during its lifetime. oneDNN's compiled loops let the stack pointer point into their
// buffers, so a signal handler that runs on the same stack would overwrite the memory below.
class Unsignalled {
 public:
  Unsignalled() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~Unsignalled() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

bool has_onednn() { return sgemm != nullptr; }

void onednn_multiply(char turn_a, char turn_b, Index m, Index n, Index k, const float* a, Index a_stride,
                     const float* b, Index b_stride, float* c) {
  const Unsignalled calm;
  const int failed = sgemm(turn_a, turn_b, m, n, k, 1.0f, a, a_stride, b, b_stride, 0.0f, c, n);
  // It fails only if there is not enough memory.
  if (failed) std::abort();
  products.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace minding

#pragma GCC visibility push(default)
// Makes kernels compute large products with the oneDNN library at `path`, or without oneDNN if `path` is null. Returns
// 1 if they use oneDNN, else 0.
extern "C" int use_onednn(const char* path) {
  void* library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* found = library == nullptr ? nullptr : dlsym(library, "dnnl_sgemm");
  minding::sgemm = reinterpret_cast<minding::Sgemm>(found);
  return found != nullptr;
}

// The number of products, or parts of products, that oneDNN has computed.
extern "C" int64_t onednn_products() { return minding::products.load(std::memory_order_relaxed); }
#pragma GCC visibility pop
