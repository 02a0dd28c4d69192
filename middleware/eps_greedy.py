"""The share of random actions in collection: on a schedule, or none."""

from collections.abc import Callable
from typing import Any

from minding.engine.annealing import left
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config
from minding.middleware.ctx_fields import collect_kwargs_in


@declare(role="collect", reads=("env_step",), optional=("collect_kwargs",), writes=("collect_kwargs",))
def eps_greedy_handler(cfg: Config) -> Callable[[OnlineRLContext], None]:
    """Sets ``collect_kwargs['eps']`` from the schedule.

    ``end + (start - end) left(env_step / decay)``: the kind linear falls over `decay` environment steps, exp decays
    with that time constant, constant stays at `start`, and piecewise follows `points`; see `engine.annealing`.

    Reads: env_step; collect_kwargs if present (other keys stay).
    Writes: collect_kwargs.
    Config: policy.other.eps.{kind, start, end, decay, points}.
    """
    eps = cfg.policy.other.eps

    def handle(ctx: OnlineRLContext) -> None:
        ctx.collect_kwargs = {**collect_kwargs_in(ctx, "eps_greedy_handler"), "eps": eps_at(eps, ctx.env_step)}

    return handle


@declare(role="collect", optional=("collect_kwargs",), writes=("collect_kwargs",))
def eps_greedy_masker() -> Callable[[OnlineRLContext], None]:
    """Sets ``collect_kwargs['eps']`` to 0: a policy of action values collects with its best actions.

    Use it instead of `eps_greedy_handler`, or after it, in a chain that collects demonstrations.

    Reads: collect_kwargs if present (other keys stay).
    Writes: collect_kwargs.
    """

    def mask(ctx: OnlineRLContext) -> None:
        ctx.collect_kwargs = {**collect_kwargs_in(ctx, "eps_greedy_masker"), "eps": 0.0}

    return mask


def eps_at(eps: Any, env_step: float) -> float:
    """The share of random actions after `env_step` environment steps, by the section `policy.other.eps`."""
    remaining = left(eps.kind, env_step / eps.decay, eps.points, "policy.other.eps.kind")
    share: float = eps.end + (eps.start - eps.end) * remaining
    return share
