"""What a policy and its buffer leave behind in a process that goes on."""

import ctypes
import weakref

import numpy as np
import pytest
from fakes import VECTOR, Batches, rows_of, space_of

from minding.engine.process import compiled
from minding.policies import get_policy_class


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_policies_tables_and_graphs_are_freed(algorithm, tiny_config):
    from mindspore.graph import api

    def learn_and_drop(algorithm=algorithm):
        # What normalized observations add to the copies of SAC's functions, 265 KB, is left out.
        normal = {"policy.model.normalize_obs": algorithm == "ppo"}
        policy = get_policy_class(algorithm)(tiny_config(algorithm, VECTOR, space_of(2), **normal))
        batches = Batches(policy, 16)
        batch = batches(rows_of(batches.layout, 16, np.random.default_rng(0), {"action": 2}), np.zeros((2, 8), int))
        policy.learn_mode.forward(batch)
        owned = [policy, batch.tables, *policy.root.get_parameters(), *batch.tables.parameters]
        return [weakref.ref(each) for each in owned]

    # The first policy of a process prepares it, with a graph that stays.
    learn_and_drop("pg")
    compiled.release()
    graphs = set(api.ms_compile_cache)
    references = learn_and_drop()
    assert len(api.ms_compile_cache) > len(graphs)
    compiled.release()
    assert [reference() for reference in references if reference() is not None] == []
    assert api.ms_compile_cache == graphs
    before = heap_in_use()
    learn_and_drop()
    compiled.release()
    # The compiler keeps functions of MindSpore that the update calls, see `ops.primitives`.
    assert heap_in_use() - before < HEAP_KEPT_KB[algorithm]


HEAP_KEPT_KB = {"ppo": 900, "sac": 1900}
"""Of one compiled update: it was 1310 (PPO) with calls of MindSpore's own functions. SAC differentiates
the layers of both critics twice, and of each the compiler keeps a copy of the function that makes the gradient: 1730,
of which 130 belong to the seed that critics with dropout take."""


def heap_in_use():
    """KB that the C library has handed out in all its heaps; 0 where it does not say."""

    class Mallinfo2(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks")]
        _fields_ += [(name, ctypes.c_size_t) for name in ("fsmblks", "uordblks", "fordblks", "keepcost")]

    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = Mallinfo2
    return mallinfo().uordblks / 1024
