"""Discrete SAC: one step against float64 NumPy, legal actions, the temperature."""

import kit
import numpy as np
import pytest
from action_values import linear, np_features
from fakes import VECTOR, dict_of, discrete, draw_masks, mask_of
from float64_networks import linear_head
from kit import BATCH

pytestmark = pytest.mark.eager

CONTRACT = {
    "discrete_sac": (VECTOR, discrete(3), {"policy.model.normalize_obs": True, "policy.model.dueling": True}),
    "discrete_sac, masked": (dict_of(action_mask=mask_of(3), observation=VECTOR), discrete(3), {}),
}
RESUMES = {"discrete SAC, random steps first": ("CartPole-v1", ("policy.collect.random_steps=32",))}

ACTIONS, ALPHA, SHARE = 4, 0.2, 0.5
MASKED = dict_of(action_mask=mask_of(ACTIONS), observation=VECTOR)
KINDS = {
    "masked": {"observation": MASKED},
    "every action is legal, fixed temperature": {"learn": {"auto_alpha": False}},
}


def away_from_the_start(bench):
    """There all actions are about as likely."""
    bench.policy.net.head.linear.weight.asnumpy()[...] *= 300.0
    rng = np.random.default_rng(3)
    for p in bench.root.targets.get_parameters():
        p.asnumpy()[...] += rng.normal(0.0, 0.3, p.shape).astype(np.float32)


SETTINGS = {"learning_rate": kit.RATE, "tau": kit.TAU, "alpha": ALPHA, "target_entropy_share": SHARE}
built, bench = kit.benches(
    "discrete_sac", action=discrete(ACTIONS), kinds=KINDS, prepare=away_from_the_start, learn=SETTINGS
)


def q_values(p, critics, obs):
    """Those of both critics, (2, B, A)."""
    parts = [f"{critics}.q{i}" for i in (1, 2)]
    return np.stack([linear(p, f"{part}.advantage", np_features(p, part, obs)) for part in parts])


class Step(kit.CriticStep):
    def read(self, place):
        """Observations, and which actions are legal."""
        obs = self.rows.get(place, self.rows.get(f"{place}.observation"))
        return obs, self.rows.get(f"{place}.action_mask", np.ones((BATCH, ACTIONS), bool))

    def expectations(self, p, critics, place):
        """Values and entropies of states under the policy, (B,) each, summed over the legal actions alone."""
        obs, legal = self.read(place)
        logits, q = linear_head(p, "net", "linear", obs), q_values(p, critics, obs).min(axis=0)
        alpha, values, entropies = np.exp(p["log_alpha"]), np.zeros(BATCH), np.zeros(BATCH)
        for n in range(BATCH):
            allowed = np.flatnonzero(legal[n])
            if len(allowed):
                log_p = logits[n, allowed] - np.log(np.exp(logits[n, allowed]).sum())
                values[n] = (np.exp(log_p) * (q[n, allowed] - alpha * log_p)).sum()
                entropies[n] = -(np.exp(log_p) * log_p).sum()
        return values, entropies

    def chosen(self, p):
        return q_values(p, "critics", self.read("obs")[0])[:, np.arange(BATCH), self.rows["action"]]

    def target(self, p):
        return self.bootstrapped(self.expectations(p, "targets", "next_obs")[0])

    def critic_loss(self, p, target):
        return 0.5 * ((self.chosen(p) - target) ** 2).sum(axis=0).mean()

    def actor_loss(self, p):
        return -self.expectations(p, "critics", "obs")[0].mean()

    def alpha_loss(self, p, entropy):
        largest = np.log(self.read("obs")[1].sum(axis=1))
        return (p["log_alpha"] * (entropy - SHARE * largest)).mean()

    def metrics(self, p, after):
        entropy = self.expectations(p, "critics", "obs")[1]
        assert 0.1 < entropy.mean() < 0.9 * np.log(ACTIONS)
        return {
            "critic_loss": self.critic_loss(p, self.target(p)),
            "actor_loss": self.actor_loss(p),
            "alpha_loss": self.alpha_loss(p, entropy),
            "alpha": ALPHA,
            "entropy": entropy.mean(),
            "q_value": self.chosen(p)[0].mean(),
        }

    def losses(self, p, after):
        target, entropy = self.target(p), self.expectations(p, "critics", "obs")[1]
        # All of them at the parameters before the step.
        found = {"critics": (lambda x: self.critic_loss(x, target), p, "critics"), "actor": (self.actor_loss, p, "net")}
        if self.settings.auto_alpha:
            found["alpha"] = (lambda x: self.alpha_loss(x, entropy), p, "log_alpha")
        return found


class TestDiscreteSAC(kit.CriticTests):
    Step = Step

    def rows(self, bench):
        """Of some actions none is legal after the end."""
        rows, rng = bench.rows(action=ACTIONS), np.random.default_rng(0)
        rows["terminated"] = (np.arange(bench.count) % 4 == 0).astype(np.float32)
        if "obs.action_mask" in rows:
            for place in ("obs", "next_obs"):
                rows[f"{place}.action_mask"] = draw_masks((ACTIONS,), bench.count, rng)
            rows["next_obs.action_mask"][:8:4] = False
            rows["action"] = rows["obs.action_mask"].argmax(axis=1)
        return rows

    def test_a_temperature_that_is_not_learned_stays(self, built):
        bench = built("every action is legal, fixed temperature")
        self.check_formulas(bench)
        assert bench.params["log_alpha"] == np.float32(np.log(ALPHA))
