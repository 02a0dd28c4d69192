// Products of matrices by oneDNN, if the process uses it.
#pragma once

#include "vectors.h"

namespace minding {

bool has_onednn();

// c (m, n) = a b, in this thread alone. `a` is (m, k), or (k, m) with 'T' for `turn_a`; `b` is (k, n), or (n, k) with
// 'T' for `turn_b`. A stride is the distance between two rows in memory.
void onednn_multiply(char turn_a, char turn_b, Index m, Index n, Index k, const float* a, Index a_stride,
                     const float* b, Index b_stride, float* c);

}  // namespace minding
