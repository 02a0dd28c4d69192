"""The share of random actions over the run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare


@declare(role="collect", reads=("env_step",), optional=("collect_kwargs",), writes=("collect_kwargs",))
def eps_greedy_handler(cfg: Any) -> Callable[[OnlineRLContext], None]:
    """Sets ``collect_kwargs['eps']`` from the schedule.

    linear: from `start` to `end` over `decay` environment steps; exp: ``end + (start - end) exp(-env_step / decay)``.

    Reads: env_step; collect_kwargs if present (other keys stay).
    Writes: collect_kwargs.
    Config: policy.other.eps.{kind, start, end, decay}.
    """
    eps = cfg.policy.other.eps

    def handle(ctx: OnlineRLContext) -> None:
        share = ctx.env_step / eps.decay
        left = math.exp(-share) if eps.kind == "exp" else max(0.0, 1.0 - share)
        ctx.collect_kwargs = {**ctx.collect_kwargs, "eps": eps.end + (eps.start - eps.end) * left}

    return handle
