"""Returns of n steps within the sequences of a replay buffer, in NumPy."""

import numpy as np

from minding.engine.buffers import SequenceBatch
from minding.engine.data.batch import IndexedBatch
from minding.engine.data.returns import nstep as nstep_returns
from minding.engine.types import Array


def sequence_targets(batch: IndexedBatch, nstep: int, gamma: float, strayed: Array | None = None) -> dict[str, Array]:
    """The parts of n-step targets that do not depend on a network. T does not include the burn-in.

    Args:
      batch: batch with index ``(K, T, B)``. A batch of another class than `SequenceBatch` has no burn-in and no
        padding.
      strayed: ``(K, T, B)``, with a burn-in too, above 0 for rows before which returns end; None: none.

    Returns:
      By name, ``(K, T, B)`` each:
      - `learned`: float32, 0 for padding of a sequence;
      - `return`, `decay`: float32, R_t and gamma^k (1 - terminated);
      - `bootstrap`: int32, the transition whose successor gives the bootstrap value, counted as in (T B,);
      - `filled`: float32, like `learned` for the rows of the burn-in; only with a burn-in.
    """
    burn_in, filled = 0, np.ones(batch.index.shape, np.bool_)
    if isinstance(batch, SequenceBatch):
        burn_in, filled = batch.burn_in, batch.filled
    learned, index = filled[:, burn_in:], batch.index[:, burn_in:]
    steps, length, sequences = index.shape
    # Time comes first, and each sequence of each gradient step is a column.
    rows = index.transpose(1, 0, 2).reshape(length, -1)
    going = learned if strayed is None else learned & (strayed[:, burn_in:] == 0)
    going = going.transpose(1, 0, 2).reshape(length, -1)
    cut = np.concatenate([~going[1:], np.ones_like(going[:1])])
    reward, terminated = (batch.layout.read(batch.tables.host, name)[rows] for name in ("reward", "terminated"))
    total, last, discount = nstep_returns(reward, cut, n=nstep, gamma=gamma)
    decay = discount * (1.0 - np.take_along_axis(terminated, last, axis=0))

    def of_steps(columns: Array) -> Array:
        return np.ascontiguousarray(columns.reshape(length, steps, sequences).transpose(1, 0, 2))

    named = {
        "learned": learned.astype(np.float32),
        "return": of_steps(total),
        "decay": of_steps(decay.astype(np.float32)),
        "bootstrap": (of_steps(last) * sequences + np.arange(sequences)).astype(np.int32),
    }
    return {**named, "filled": filled[:, :burn_in].astype(np.float32)} if burn_in else named
