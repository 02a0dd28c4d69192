"""The command line of minding with another SAC: ``python -m proofs.critics_first train halfcheetah_sac``.

Actor and temperature see the critics after their step, as in Stable-Baselines3 and Tianshou, where `SACCell` takes all
gradients before anything moves.
"""

from __future__ import annotations

from typing import Any

from minding.cli import main
from minding.engine.process.runtime import ops
from minding.policies import sac
from minding.policies.ops.primitives import after


class CriticsFirstCell(sac.SACCell):
    """Root cell of SAC whose step has two halves: critics, then actor and temperature."""

    def construct(self, batch: Any) -> Any:
        alpha = ops.exp(self.log_alpha)
        batch["alpha"] = alpha
        # Target
        batch["target"] = self.td_target(batch)
        # Critics
        (_, critic), critic_grads = self.critic_gradient(batch)
        stepped = self.optim({"critics": critic_grads}, batch, (critic, critic_grads))["critics"]
        # Actor and temperature
        batch["obs"] = after(batch["obs"], stepped)
        (_, actor), actor_grads = self.actor_gradient(batch)
        entropy = actor["entropy"]
        excess = entropy - self.target_entropy(batch)
        metrics = {
            "critic_loss": critic["critic_loss"],
            "actor_loss": actor["actor_loss"],
            "alpha_loss": self.log_alpha * excess,
            "alpha": alpha,
            "q_value": critic["q_value"],
            "entropy": entropy,
        }
        grads = {"actor": actor_grads, "alpha": (excess,)}
        norms = self.optim(grads, batch, (actor, metrics, grads))
        moved = self.move_targets(batch["tau"], norms["actor"])
        # Who waits for a metric waits for the whole step.
        metrics["entropy"] = after(entropy, (norms, moved))
        return metrics


if __name__ == "__main__":
    sac.SAC.step_class = CriticsFirstCell
    main()
