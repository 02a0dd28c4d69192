"""Messages as bytes: a short pickled header, and separately the memory of their arrays."""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle
import numpy as np


def serialize(message: Any) -> tuple[bytes, list[memoryview]]:
    """Pickles a message (protocol 5); `pickle.loads(header, buffers=copies)` rebuilds it from copies.

    Returns:
      The header, and views of the arrays' memory, which is not in the header. Later writes to the arrays change the
      views: copy them.
    """
    buffers: list[pickle.PickleBuffer] = []
    header = io.BytesIO()
    _Pickler(header, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append).dump(message)
    return header.getvalue(), [buffer.raw() for buffer in buffers]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles classes of the user's script, which a worker does not have, by value."""

    def reducer_override(self, thing: Any) -> Any:
        if type(thing) is np.ndarray and not (thing.flags.forc or thing.dtype.hasobject):
            # NumPy leaves only contiguous arrays out of the header.
            return np.ascontiguousarray(thing).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return super().reducer_override(thing)
