"""Messages in two parts: a short pickled head, and the memory of their arrays beside it."""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle
import numpy as np


def take_apart(message: Any) -> tuple[bytes, list[memoryview]]:
    """Pickles a message (protocol 5); `pickle.loads(head, buffers=copies)` puts copies of it together.

    Returns:
      The head, and views of the arrays' memory, which is not in the head. They show what is written to the arrays
      later: copy them.
    """
    buffers: list[pickle.PickleBuffer] = []
    head = io.BytesIO()
    _Packer(head, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append).dump(message)
    return head.getvalue(), [buffer.raw() for buffer in buffers]


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    """Classes of the user's script, which a worker does not have, are sent by value."""

    def reducer_override(self, thing: Any) -> Any:
        if type(thing) is np.ndarray and not (thing.flags.forc or thing.dtype.hasobject):
            # NumPy leaves only contiguous arrays out of the head.
            return np.ascontiguousarray(thing).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return super().reducer_override(thing)
