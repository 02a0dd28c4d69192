"""Prepares a process for the policy of a configuration."""

import functools
import logging
from typing import Any

from minding.engine.config.config import Config
from minding.engine.data.observation import observation_leaves
from minding.engine.lanes.options import cores
from minding.engine.process import runtime
from minding.policies import kernels

_log = logging.getLogger("minding.run")


def prepare(cfg: Config) -> None:
    """Prepares MindSpore for a compiled configuration, see `runtime.prepare`. Every policy does this before anything
    else, so that it computes the same in a script, a command and a worker."""
    spec = cfg.env.spec
    state = spec.agents.state if "agents" in spec else None
    seen = [spec.observation, *([] if state is None else [state])]
    images = any(leaf.is_image for space in seen for leaf in observation_leaves(space))
    images = images or cfg.policy.model.get("net") == "residual"
    # A user's own encoder may have convolutions of MindSpore, and so has every network without this package's kernels.
    convolutions = cfg.policy.model.get("encoder") is not None or (images and not kernels.compiled())
    given = _within_cores(cfg.run.jit_threads)
    # This package's kernels have their own threads. MindSpore gets one thread, as more would change its rounding.
    threads = 1 if kernels.compiled() and not convolutions else given
    short = _updates_are_short(cfg.policy)
    runtime.prepare(runtime.Settings(cfg.device, threads, convolutions=convolutions, short_graphs=short))
    kernels.prepare(given)


def _within_cores(threads: int) -> int:
    """`threads`, limited to the number of cores, because a run may continue on a machine with fewer cores."""
    available = len(cores())
    if threads > available:
        _warn_once(
            f"run.jit_threads={threads} exceeds the number of cores that this process may use: it computes with "
            f"{available}"
        )
    return min(threads, available)


@functools.cache
def _warn_once(message: str) -> None:
    _log.warning(message)


def _updates_are_short(policy: Any) -> bool:
    """Whether an update is one gradient step in which each layer is one kernel."""
    learn = policy.learn
    steps = learn.get("update_per_collect", learn.get("n_epoch", 1) * learn.get("n_minibatch", 1))
    return steps == 1 and kernels.compiled()
