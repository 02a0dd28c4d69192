"""The command line of minding with another SAC: ``python -m proofs.critics_first train halfcheetah_sac``.

Actor and temperature see the critics after their step, as in Stable-Baselines3 and Tianshou, where `SACCell` takes all
gradients before anything moves.
"""

from __future__ import annotations

from minding.cli import main
from minding.policies import sac
from minding.policies.families.soft_actor_critic import DelayedActorStep


class CriticsFirstCell(DelayedActorStep):
    """Root cell of SAC whose step has two halves: critics, then actor and temperature."""

    td_target = sac.SACCell.td_target


if __name__ == "__main__":
    sac.SAC.step_class = CriticsFirstCell
    main()
