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
    runtime.prepare(
        runtime.Settings(
            cfg.device, cfg.run.jit_threads, convolutions=images, short_graphs=_updates_are_short(cfg.policy, images)
        )
    )


def _updates_are_short(policy: Any, images: bool) -> bool:
    """Whether an update is one gradient step whose networks are a kernel each."""
    return policy.learn.get("update_per_collect") == 1 and not images and kernels.compiled()
