"""Collecting without random actions."""

from __future__ import annotations

from collections.abc import Callable

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.middleware.inputs import collect_kwargs_in


@declare(role="collect", optional=("collect_kwargs",), writes=("collect_kwargs",))
def eps_greedy_masker() -> Callable[[OnlineRLContext], None]:
    """Sets ``collect_kwargs['eps']`` to 0: a policy of action values collects with its best actions.

    Use it instead of `eps_greedy_handler`, or after it, in a chain that collects demonstrations.

    Reads: collect_kwargs if present (other keys stay).
    Writes: collect_kwargs.
    Config: nothing.
    """

    def mask(ctx: OnlineRLContext) -> None:
        ctx.collect_kwargs = {**collect_kwargs_in(ctx, "eps_greedy_masker"), "eps": 0.0}

    return mask
