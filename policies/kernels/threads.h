// Work divided among the threads that this process gives to kernels.
#pragma once

#include "vectors.h"

namespace minding {

// One part of some work: `data` says what, `part` which. It must not call `divide`. It is a function and not a lambda so
// that it can be compiled for several processors, see `CLONED`.
typedef void (*Part)(const void* data, Index part);

// Does the parts [0, count), in any order, in this thread and in the others; returns when all are done. No part may
// depend on another, and no result on who computes it. While another thread divides work, this one does its own alone.
void divide(Index count, Part part, const void* data);

// How many threads work is divided among, this one included.
Index threads();

}  // namespace minding
