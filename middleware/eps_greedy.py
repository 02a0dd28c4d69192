"""The share of random actions in collection: on a schedule, or none."""

from collections.abc import Callable, Sequence
from typing import Any

from minding.engine.annealing import left
from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declaration_of, declare
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


def explores_by_chance(cfg: Config) -> bool:
    """Whether exploration takes random actions, and not noise on the weights."""
    return "eps" in cfg.policy.other and not cfg.policy.model.get("noisy", False)


def never_explores(cfg: Config, chain: Sequence[Any]) -> Sequence[str]:
    """Reports a chain in which nothing sets the share of random actions, by which the policy explores."""
    declared = [declaration_of(each) for each in chain]
    if not explores_by_chance(cfg) or any(each is None or "collect_kwargs" in each.writes for each in declared):
        return []
    return [
        "its policy explores by random actions, and nothing sets their share, ctx.collect_kwargs['eps']: add "
        "eps_greedy_handler(cfg) before it, or eps_greedy_masker() if only best actions are wanted"
    ]
