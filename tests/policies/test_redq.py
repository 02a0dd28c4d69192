"""REDQ: one step against float64 NumPy, the subset of the targets, the delay of the actor."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, space_of
from float64_networks import squashed, value
from test_dropout import kept

pytestmark = pytest.mark.eager

SMALL = {"policy.model.n_critics": 3, "policy.learn.policy_delay": 1}
DROQ = {"policy.model.norm": "critics", "policy.model.dropout": 0.2}
CONTRACT = {"redq": (VECTOR, space_of(3), SMALL), "droq": (VECTOR, space_of(3), {**SMALL, **DROQ})}
RESUMES = {}
MOVES = {"policy.learn.policy_delay": 1}

ALPHA, CRITICS, SUBSET = 0.2, 4, 2
KINDS, LEARN = {"redq": {}, "droq": DROQ}, {"alpha": ALPHA, "target_subset": SUBSET, "policy_delay": 1}
built, bench = kit.critic_benches("redq", "targets", kinds=KINDS, model={"n_critics": CRITICS}, **LEARN)


class Step(kit.SoftStep):
    critics_first = True
    critics = tuple(f"critics.q{k}" for k in range(1, CRITICS + 1))

    def __init__(self, bench, rows):
        super().__init__(bench, rows)
        order = self.rng.permuted(np.arange(CRITICS)[None], axis=1)[0]
        self.targets = tuple(f"targets.q{k + 1}" for k in np.flatnonzero(order < self.settings["target_subset"]))
        self.seeds = None
        if bench.policy.cfg.model.dropout:
            self.seeds = self.rng.integers(-(2**31), 2**31, (1, 3), dtype=np.int32)[0]

    def value(self, p, name, action, obs, use):
        """Q(s, a) for targets (use 0), critics (1), and the judgement of the actor (2)."""
        if self.seeds is None:
            return value(p, name, action, obs)
        x = np.concatenate([obs, action], axis=1) @ p[f"{name}.torso.layers.0.weight"].T
        x = x + p[f"{name}.torso.layers.0.bias"]
        x = x * kept(x.shape, 0.2, int(self.seeds[use]), int(name[-1]) - 1) / 0.8
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5)
        x = np.maximum(x * p[f"{name}.torso.norms.0.weight"] + p[f"{name}.torso.norms.0.bias"], 0.0)
        return (x @ p[f"{name}.value.weight"].T + p[f"{name}.value.bias"])[:, 0]

    def target(self, p):
        action, log_prob = squashed(p, "net", self.next_obs, self.following)
        q = np.min([self.value(p, name, action, self.next_obs, 0) for name in self.targets], axis=0)
        return self.bootstrapped(q - ALPHA * log_prob)

    def critic_loss(self, p, target):
        q = [self.value(p, name, self.action, self.obs, 1) for name in self.critics]
        return 0.5 * np.square(np.array(q) - target).mean(axis=1).sum()

    def q_value(self, p):
        return self.value(p, self.critics[0], self.action, self.obs, 1).mean()

    def worth(self, p, action):
        return np.mean([self.value(p, name, action, self.obs, 2) for name in self.critics], 0)


class TestREDQ(kit.CriticTests):
    Step = Step

    def test_critics_with_dropout_are_those_of_the_formulas(self, built):
        self.check_formulas(built("droq"))

    def test_actor_and_temperature_move_in_due_steps_across_calls(self, bench):
        self.check_due_steps(bench, {"critics", "targets"})
