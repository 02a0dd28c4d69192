"""mpe2's simple_spread_v3 and simple_tag_v3 for many worlds at once."""

from typing import Any

from minding.envs.games.particles.particles_vector import ParticlesVector
from minding.envs.games.particles.scenarios import Spread, Tag

__all__ = ["ParticlesVector", "simple_spread", "simple_tag"]


def simple_spread(
    num_envs: int,
    max_episode_steps: int | None = None,
    global_state: bool = False,
    team_reward: bool = False,
    **kwargs: Any,
) -> ParticlesVector:
    """N worlds of `Spread`, see `ParticlesVector`; `kwargs` are those of mpe2's environment."""
    return ParticlesVector(Spread(**kwargs), num_envs, max_episode_steps, global_state, team_reward)


def simple_tag(
    num_envs: int,
    max_episode_steps: int | None = None,
    global_state: bool = False,
    team_reward: bool = False,
    **kwargs: Any,
) -> ParticlesVector:
    """N worlds of `Tag`, see `ParticlesVector`; `kwargs` are those of mpe2's environment."""
    return ParticlesVector(Tag(**kwargs), num_envs, max_episode_steps, global_state, team_reward)
