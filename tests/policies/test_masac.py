"""MASAC: one update against float64 NumPy with masks and deaths, for discrete and continuous actions."""

import numpy as np
import pytest
from float64_networks import squashed
from team_critics import AGENTS, BATCH, RATE, SPACES, Step, check_step, differ, make, mean, rows_for

pytestmark = pytest.mark.eager

CONTRACT = {"masac": (*SPACES["discrete"], {"policy.model.normalize_obs": True}), "masac, box": (*SPACES["box"], {})}
RESUMES = {}
ALTERNATIVES = ("env.env_id=agent_worlds:Mixed", "env.env_kwargs={actions: box}")
ALPHAS = np.array([0.2, 0.5, 0.9], np.float32)


class SoftStep(Step):
    """`Step` with entropies: what is added to a value is the entropy times the temperature."""

    def next_action(self, p, m):
        action, entropy = self.with_entropy(p, m, "next_obs", 1)
        return action, ALPHAS[m] * entropy

    def with_entropy(self, p, m, when, k):
        if not self.discrete:
            seen = self.rows[f"{when}.observation"][:, m].astype(np.float64)
            action, log_prob = squashed(p, f"net.nets.{m}", seen, self.noise[k][:, m])
            return action, -log_prob
        logits = self.output(p, "net", m, when)
        log_p = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
        log_p -= logits.max(1, keepdims=True)
        return self.drawn(logits, m, k), -(np.exp(log_p) * log_p).sum(axis=1)

    def judged(self, q):
        return q.min(axis=0)

    def actor_loss(self, p):
        loss = 0.0
        for m in range(AGENTS):
            own, entropy = self.with_entropy(p, m, "obs", 0)
            loss -= mean(self.value_of(p, m, own) + ALPHAS[m] * entropy, self.alive[:, m])
        return loss

    def linearised(self, p, fixed):
        return super().linearised(p, fixed) if self.discrete else self.actor_loss(p)

    def penalty(self, logits, m):
        log_p = logits - logits.max(1, keepdims=True)
        log_p = log_p - np.log(np.exp(log_p).sum(1, keepdims=True))
        return mean(ALPHAS[m] * (np.exp(log_p) * log_p).sum(axis=1), self.alive[:, m])

    def entropies(self, p):
        """For each agent its mean entropy, and how far it is above the entropy at which the temperature aims."""
        found = []
        for m in range(AGENTS):
            wanted = -2.0
            if self.discrete:
                wanted = 0.4 * np.log(self.rows["obs.action_mask"][:, m].sum(axis=1))
            entropy, there = self.with_entropy(p, m, "obs", 0)[1], self.alive[:, m]
            found.append((mean(entropy, there), mean(entropy - wanted, there)))
        return np.array(found).T


@pytest.mark.parametrize("kind", ["box", "team"])
def test_losses_follow_the_formulas_and_targets_follow(kind):
    bench = make("masac", kind, {"temperature": 0.7, "target_entropy_share": 0.4})
    differ(bench)
    bench.root.log_alpha.asnumpy()[...] = np.log(ALPHAS)
    rng = bench.upcoming()
    if kind == "box":
        noise = rng.standard_normal((2, 1, BATCH, AGENTS, 2), dtype=np.float32)[:, 0]
    else:
        noise = rng.gumbel(size=(2, 1, BATCH, AGENTS, 3))[:, 0]
    rows = rows_for(bench)
    step = SoftStep(bench.policy, rows, noise)
    before = bench.params
    entropy, excess = step.entropies(before)

    def metrics_of(p):
        return {"entropy": entropy.mean(), "alpha": ALPHAS.mean(), "alpha_loss": (np.log(ALPHAS) * excess).mean()}

    check_step(bench, rows, step, metrics_of)
    # Adam's first step is as long as the learning rate.
    moved = bench.params["log_alpha"] - before["log_alpha"]
    np.testing.assert_allclose(moved, -RATE * np.sign(excess), rtol=1e-3)
