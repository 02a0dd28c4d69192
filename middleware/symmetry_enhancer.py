"""Mirrored and rotated games, which are as valid as those that were played."""

from typing import Any

import numpy as np

from minding.engine.chain.context import OnlineRLContext
from minding.engine.chain.middleware import declare
from minding.engine.data import obs_trees
from minding.engine.data.masks import ACTION_MASK
from minding.engine.types import Array, BoardGame
from minding.middleware.ctx_fields import episodes_in


@declare(role="learn", reads=("episodes",), writes=("episodes",))
class symmetry_enhancer:
    """Adds the equivalent forms of each game: its positions, masks and policies under the rules' `symmetries`.

    Reads: episodes, as `SelfPlayCollector` writes them.
    Writes: episodes (each followed by its other forms; they have no `action`).
    Config: nothing.

    Args:
      game: the rules.
    """

    def __init__(self, game: BoardGame) -> None:
        self._game = game

    def __call__(self, ctx: OnlineRLContext) -> None:
        """Adds the equivalent forms of an iteration's games."""
        games: list[dict[str, Any]] = episodes_in(ctx, "symmetry_enhancer")
        ctx.episodes = [form for game in games for form in (game, *self._others(game))]

    def _others(self, episode: dict[str, Any]) -> list[dict[str, Any]]:
        leaves = dict(obs_trees.leaves(episode["obs"]))
        path = next(name for name in leaves if name != ACTION_MASK)
        planes, policy = leaves[path], episode["policy"]
        forms = self._game.symmetries(planes, policy)[1:]
        masks: list[Array | None] = [None] * len(forms)
        if ACTION_MASK in leaves:
            legal = leaves[ACTION_MASK].astype(np.float32)
            masks = [mask > 0 for _, mask in self._game.symmetries(planes, legal)[1:]]
        others = []
        for (seen, played), mask in zip(forms, masks):
            obs = {path: seen} if mask is None else {path: seen, ACTION_MASK: mask}
            others.append({"obs": obs_trees.unflatten(obs), "policy": played, "outcome": episode["outcome"]})
        return others
