"""Ids of board games of other packages: ``openspiel:GAME`` and ``classic/GAME`` (PettingZoo)."""

from gymnasium.envs.registration import EnvSpec

from minding.engine.config.named import OPENSPIEL
from minding.envs.games.boards.pettingzoo_classic import LONGEST

_CLASSIC = "classic/"


def board_spec(env_id: str) -> EnvSpec | None:
    """The spec of a board game of another package; None for other ids."""
    classic = env_id.removeprefix("pettingzoo/")
    if env_id.startswith(OPENSPIEL):
        rules, name = "openspiel", env_id.removeprefix(OPENSPIEL)
    elif classic.startswith(_CLASSIC) and classic.removeprefix(_CLASSIC) in LONGEST:
        rules, name = "classic", classic.removeprefix(_CLASSIC)
    else:
        return None
    return EnvSpec(
        f"{rules}/{name}" if name.isidentifier() else rules,
        "minding.envs.games.board:RulesEnv",
        vector_entry_point="minding.envs.games.board:RulesVector",
        kwargs={"rules": rules, "name": name},
    )
