// Reads the fields of chosen rows from a table.
#include "custom.h"

namespace minding {
namespace {

enum { NUMBERS, COLUMNS, TABLE, FIELDS };

// row indices int32 (B,), first column of each field int32 (F,), table (N, W) -> F fields (B, ...), float32 or int32
ALWAYS_INLINE int take_fields(const Call& call) {
  const Index batch = call.size(NUMBERS);
  if (batch == 0) return 0;
  const Index rows = call.shapes[TABLE][0], width = call.shapes[TABLE][1];
  const int32_t *numbers = call.integers(NUMBERS), *columns = call.integers(COLUMNS);
  for (Index i = 0; i < batch; i++)
    if (numbers[i] < 0 || numbers[i] >= rows) return 1;
  for (int f = FIELDS; f < call.count; f++) {
    const Index size = call.size(f) / batch;
    const float* column = call.floats(TABLE) + columns[f - FIELDS];
    if (call.is_integer(f)) {
      int32_t* field = call.integers(f);
      for (Index i = 0; i < batch; i++)
        for (Index j = 0; j < size; j++) *field++ = static_cast<int32_t>(column[numbers[i] * width + j]);
    } else {
      float* field = call.floats(f);
      for (Index i = 0; i < batch; i++)
        for (Index j = 0; j < size; j++) *field++ = column[numbers[i] * width + j];
    }
  }
  return 0;
}

}  // namespace
}  // namespace minding

DEFINE_KERNEL(take_fields, minding::take_fields)
