"""What a configuration asks of the process in which its policy computes."""

from __future__ import annotations

from typing import Any

from minding.engine.data.observation import observation_leaves
from minding.engine.process import runtime
from minding.policies import kernels


def prepare(cfg: Any) -> None:
    """Prepares MindSpore for a compiled configuration, see `runtime.prepare`.

    Every policy does this before anything else, so that it computes the same in a script, a command and a worker.
    """
    images = any(leaf.is_image for leaf in observation_leaves(cfg.env.spec.observation))
    # Kernels of our own have threads of their own. With more than one MindSpore's would round differently.
    threads = 1 if kernels.compiled() and not images else cfg.run.jit_threads
    runtime.prepare(
        runtime.Settings(cfg.device, threads, convolutions=images, short_graphs=_updates_are_short(cfg.policy, images))
    )
    kernels.prepare(cfg.run.jit_threads)


def _updates_are_short(policy: Any, images: bool) -> bool:
    """Whether an update is one gradient step whose layers are a kernel each."""
    return policy.learn.get("update_per_collect") == 1 and not images and kernels.compiled()
