// Division of work among the threads that this process gives to kernels.
#pragma once

#include "vectors.h"

namespace minding {

// Does one part of some work: `data` describes the work, `part` is the number of the part. It must not call `divide`.
// It is a function and not a lambda, so that it can be compiled for several processors, see `CLONED`.
typedef void (*Part)(const void* data, Index part);

// Does the parts [0, count), in any order, in this thread and in the others; returns when all are done. No part may
// depend on another, and no result on the thread that computes it. While another thread divides work, the calling
// thread does all parts of its own work.
void divide(Index count, Part part, const void* data);

// The number of threads among which work is divided, including the calling thread.
Index threads();

}  // namespace minding
