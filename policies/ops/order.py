"""The order of reads and writes inside a compiled update."""

from __future__ import annotations

from minding.engine.process.runtime import ops


def after(value, done):
    """`value`, computed or read only once `done` is there.

    MindSpore orders kernels by their data. Nothing in a forward pass depends on an optimizer's step, which writes into
    the parameters: a pass that comes later in the same compiled call reads the weights from before the step. With
    ``net(after(obs, norm))`` it reads those of after it, with our own kernels and without.

    Args:
      value: a tensor, a parameter, or a tuple of tensors: an input of what must come later. Of a tuple of parameters
        some are read too early: pass them one by one.
      done: a tensor or a tuple of them: results of what must come first.
    """
    return ops.depend(value, done)
