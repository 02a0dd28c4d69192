"""The order of reads and writes inside a compiled update."""

from __future__ import annotations

from minding.engine.process.runtime import ops


def after(value, done):
    """`value`, which is computed or read only after `done`.

    MindSpore orders kernels by their data. An optimizer's step writes into the parameters, but no data of a later
    forward pass in the same compiled call depends on it, so the pass may read the weights from before the step. With
    ``net(after(obs, norm))`` it reads the weights from after the step, with this package's kernels and without.

    Args:
      value: a tensor, a parameter, or a tuple of tensors: an input of the computation that must come later. Do not pass
        a tuple of parameters, some of which would be read too early; pass parameters one by one.
      done: a tensor or a tuple of tensors: results of the computation that must come first.
    """
    return ops.depend(value, done)
