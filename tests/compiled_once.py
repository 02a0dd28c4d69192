"""Updates of tests without a compilation of their own, because compiling one takes seconds.

Policies of the same configuration share one compiled update, and updates of tests marked ``eager`` are not compiled.

A run and the runs that continue it build equal policies in one process. The first of them compiles its update, and the
others run that graph on their own numbers: these are copied into the parameters and tables of the first policy before
each call, and back after it. All state stays with the policy that has it.

Tests marked ``shared_graphs`` do this. What a graph is compiled from decides whether two are equal, see `constants`; a
function of a module that a test replaces is not seen.

Tests marked ``eager`` run the Python code of their updates, operator by operator, which takes 10 to 100 ms a step. It
is the code that others compile: `policies/test_contract.py` compares the two for every algorithm.
"""

import types
from collections.abc import Mapping

import numpy as np
import pytest

from minding.engine.process import runtime
from minding.engine.process.compiled import Compiled
from minding.policies.ops import primitives

MOST = 12
"""So many graphs are kept, with 10 to 20 MB each."""


class Shared:
    """The graphs of updates, by what they were compiled from."""

    def __init__(self):
        self.on, self.eager, self.lent, self.compiled, self.borrowed = False, False, {}, 0, 0

    def install(self):
        """Changes `Compiled` for this process; it shares graphs while this object is `on`, none while it is `eager`."""
        compile_own = Compiled._first

        def first(compiled, inputs, signature):
            is_update = type(compiled._cell).__name__ == "GradientLoop"
            if self.eager and is_update:
                compiled._graphs[signature] = eagerly(compiled._cell)
                return compiled._graphs[signature](inputs)
            if not self.on or not is_update:
                return compile_own(compiled, inputs, signature)
            key = (signature, str(runtime.settings()), *constants(compiled._cell, {}))
            own = [p.asnumpy() for p in numbers_of(compiled._cell)]
            if key in self.lent:
                self.borrowed += 1
                # It is the last one to be given up now.
                self.lent[key] = self.lent.pop(key)
                compiled._graphs[signature] = borrowed(self.lent[key], own)
                return compiled._graphs[signature](inputs)
            output = compile_own(compiled, inputs, signature)
            self.compiled += 1
            # With this object its graph is kept.
            self.lent[key] = compiled, compiled._graphs[signature], own
            if len(self.lent) > MOST:
                del self.lent[next(iter(self.lent))]
            return output

        Compiled._first = first


shared = Shared()


def eagerly(cell):
    """What a graph of a cell computes, by its Python code."""
    construct, stacked = type(cell).construct.__wrapped__, primitives.stacked

    def run(inputs):
        with pytest.MonkeyPatch.context() as patch:
            # The first two are for graphs only, and MindSpore stacks parameters with tensors in graphs only.
            patch.setattr(primitives, "item", lambda values, k: values[k])
            patch.setattr(primitives, "named", lambda names, values: dict(zip(names, values)))
            patch.setattr(primitives, "stacked", lambda values: stacked([1.0 * x for x in values]))
            return construct(cell, *inputs)

    return run


def borrowed(lent, own):
    """A graph of another policy that computes with this one's numbers."""
    _, graph, there = lent

    def run(inputs):
        kept = [array.copy() for array in there]
        copy(own, there)
        output = graph(inputs)
        copy(there, own)
        copy(kept, there)
        return output

    # Keeps the object to which the graph belongs.
    run.lent = lent
    return run


def copy(arrays, into):
    for source, target in zip(arrays, into, strict=True):
        target[...] = source


def numbers_of(loop):
    """The parameters whose numbers a `GradientLoop` reads or changes; flat ones share the memory of others."""
    optim = getattr(loop.root, "optim", None)
    found = [*loop.get_parameters(), *loop.tables, *getattr(optim, "sums", ())]
    return list({id(p): p for p in found}.values())


def constants(node, seen):
    """What may be compiled into a graph of a cell: classes with their methods, functions, numbers, texts, and the
    shapes of parameters."""
    if isinstance(node, (bool, int, float, str, bytes, np.number, np.dtype)) or node is None:
        yield type(node), str(node)
        return
    if id(node) in seen:
        return
    seen[id(node)] = node
    ms, nn, ops = runtime.ms, runtime.nn, runtime.ops
    if isinstance(node, ms.Parameter):
        yield tuple(node.shape), str(node.dtype), node.requires_grad
    elif isinstance(node, (ms.Tensor, np.ndarray)):
        array = node.asnumpy() if isinstance(node, ms.Tensor) else node
        yield array.shape, str(array.dtype), array.tobytes()
    elif isinstance(node, Mapping):
        for key, value in node.items():
            yield str(key)
            yield from constants(value, seen)
    elif isinstance(node, (list, tuple, set, frozenset)):
        yield len(node)
        for each in node:
            yield from constants(each, seen)
    elif type(node).__qualname__ == "Block":
        # Where parameters are, and no constant.
        yield type(node), node._memory.shape
    elif type(node).__qualname__ == "RunningMoments":
        # Of observations so far. Graphs read the parameters that are made of them.
        yield type(node)
    elif isinstance(node, ops.Primitive):
        yield node.name
        yield from constants(node.attrs, seen)
    elif isinstance(node, types.MethodType):
        yield node.__func__
        yield from constants(node.__self__, seen)
    elif isinstance(node, types.FunctionType):
        yield node.__code__
        for each in node.__closure__ or ():
            yield from constants(each.cell_contents, seen)
    else:
        yield type(node)
        if isinstance(node, nn.Cell):
            for kind in type(node).__mro__[: type(node).__mro__.index(nn.Cell)]:
                yield from (value for value in vars(kind).values() if isinstance(value, types.FunctionType))
            # MindSpore's own account of a cell, such as the time at which it was made, is left out.
            account = vars(nn.Cell()).keys() - {"_params", "_cells", "_primitives", "_params_list"}
            yield from constants({k: v for k, v in vars(node).items() if k not in account}, seen)
        elif type(node).__module__.startswith("minding."):
            yield from constants(vars(node), seen)
