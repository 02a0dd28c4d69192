// The threads among which kernels divide their work. They start when work is divided for the first time, wait for more
// work in a short loop, then sleep, and end with the process.
//
// A thread that sleeps, or that another process keeps from running, does not delay the others: a running thread takes
// the next part, and the work is done when all parts are done.
#include "threads.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace minding {
namespace {

// Time for which a thread waits awake: the gap between two large products of an update.
constexpr std::chrono::microseconds AWAKE(100);
// Most threads that a configuration may ask for. More would slow the whole machine and speed up no product.
constexpr int MOST = 256;

ALWAYS_INLINE void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The floating-point mode of this thread: rounding, and whether denormal numbers are zero.
#if defined(__x86_64__)
ALWAYS_INLINE uint64_t float_mode() { return _mm_getcsr() & ~_MM_EXCEPT_MASK; }
ALWAYS_INLINE void set_float_mode(uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }
#elif defined(__aarch64__)
ALWAYS_INLINE uint64_t float_mode() {
  uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
ALWAYS_INLINE void set_float_mode(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
#else
ALWAYS_INLINE uint64_t float_mode() { return 0; }
ALWAYS_INLINE void set_float_mode(uint64_t) {}
#endif

class Pool {
 public:
  explicit Pool(int helpers) {
    // Helpers block all signals, which are handled by the threads of the program.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      for (int i = 0; i < helpers; i++) helpers_.emplace_back([this] { help(); });
    } catch (const std::system_error&) {
      // No more threads can be started; the existing ones do the work.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ended_ = true;
    }
    work_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }

  // Only one thread may call this at a time.
  void divide(Index count, Part part, const void* data) {
    part_.store(part, std::memory_order_relaxed);
    data_.store(data, std::memory_order_relaxed);
    mode_.store(float_mode(), std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    tickets_.store((++number_ << 32) | static_cast<uint64_t>(count));
    if (asleep_.load() > 0) {
      // A thread that is about to sleep holds the lock until it sleeps.
      { std::lock_guard<std::mutex> lock(mutex_); }
      work_.notify_all();
    }
    while (do_part()) {
    }
    for (int i = 0; done_.load(std::memory_order_acquire) != count; i++) {
      if (i < 1000) pause();
      else std::this_thread::yield();
    }
  }

 private:
  bool has_parts() const { return static_cast<uint32_t>(tickets_.load()) != 0; }

  // Takes a part and does it; returns false if no part is left.
  bool do_part() {
    uint64_t ticket = tickets_.load();
    for (;;) {
      if (static_cast<uint32_t>(ticket) == 0) return false;
      // The values read here belong to the ticket if the exchange below finds the ticket unchanged.
      Part part = part_.load(std::memory_order_relaxed);
      const void* data = data_.load(std::memory_order_relaxed);
      const uint64_t mode = mode_.load(std::memory_order_relaxed);
      if (!tickets_.compare_exchange_weak(ticket, ticket - 1)) continue;
      if (float_mode() != mode) set_float_mode(mode);
      part(data, static_cast<uint32_t>(ticket) - 1);
      done_.fetch_add(1, std::memory_order_release);
      return true;
    }
  }

  void help() {
    while (!ended_.load()) {
      if (do_part()) continue;
      const auto until = std::chrono::steady_clock::now() + AWAKE;
      while (!has_parts() && std::chrono::steady_clock::now() < until)
        for (int i = 0; i < 16 && !has_parts(); i++) pause();
      if (has_parts()) continue;
      std::unique_lock<std::mutex> lock(mutex_);
      asleep_++;
      work_.wait(lock, [this] { return ended_.load() || has_parts(); });
      asleep_--;
    }
  }

  // The number of the work, then the number of its parts that are not taken yet (32 bits each).
  std::atomic<uint64_t> tickets_{0};
  std::atomic<Part> part_{nullptr};
  std::atomic<const void*> data_{nullptr};
  std::atomic<uint64_t> mode_{0};
  std::atomic<Index> done_{0};
  std::atomic<int> asleep_{0};
  std::atomic<bool> ended_{false};
  uint64_t number_ = 0;
  std::mutex mutex_;
  std::condition_variable work_;
  std::vector<std::thread> helpers_;
};

std::atomic<Index> given{1};
// Held by the thread that uses or changes `pool` and `pool_threads`.
std::atomic<bool> taken{false};
Pool* pool = nullptr;
Index pool_threads = 1;

bool take() { return !taken.exchange(true, std::memory_order_acquire); }
void give_back() { taken.store(false, std::memory_order_release); }

// A forked process has a copy of the pool's memory, but not its threads.
void forget_pool() {
  pool = nullptr;
  give_back();
}

// Ends the threads with the process, unless a thread of the program still computes.
struct End {
  ~End() {
    if (!take()) return;
    delete pool;
    pool = nullptr;
  }
} end;

void make_pool(Index wanted) {
  static const int registered = pthread_atfork(nullptr, nullptr, forget_pool);
  (void)registered;
  delete pool;
  pool = new Pool(static_cast<int>(wanted) - 1);
  pool_threads = wanted;
}

}  // namespace

Index threads() { return given.load(std::memory_order_relaxed); }

void divide(Index count, Part part, const void* data) {
  const Index wanted = threads();
  if (wanted > 1 && count > 1 && take()) {
    if (pool == nullptr || pool_threads != wanted) make_pool(wanted);
    pool->divide(count, part, data);
    give_back();
    return;
  }
  for (Index i = 0; i < count; i++) part(data, i);
}

}  // namespace minding

#pragma GCC visibility push(default)
// Sets the number of threads of kernels, clipped to [1, MOST], for the whole process. Returns the new number.
extern "C" int use_threads(int count) {
  const int within = std::max(1, std::min(count, minding::MOST));
  minding::given.store(within);
  return within;
}
#pragma GCC visibility pop
