"""EDAC and SAC-N: one step against float64 NumPy, the slopes that are kept apart."""

from typing import ClassVar

import kit
import numpy as np
from fakes import VECTOR, space_of

SMALL = {"policy.model.normalize_obs": True, "policy.model.n_critics": 3}
CONTRACT = {"edac": (VECTOR, space_of(2, 2), SMALL)}
RESUMES = {}

ALPHA, CRITICS, WEIGHT = 0.2, 3, 0.7
KINDS = {"edac": {"learn": {"diversity_weight": WEIGHT}}, "sac_n": {"learn": {"diversity_weight": 0.0}}}
built, bench = kit.critic_benches("edac", "targets", kinds=KINDS, model={"n_critics": CRITICS}, alpha=ALPHA)


def slopes(p, name, action, obs):
    weight = p[f"{name}.torso.layers.0.weight"]
    hidden = np.concatenate([obs, action], axis=1) @ weight.T + p[f"{name}.torso.layers.0.bias"]
    return ((hidden > 0) * p[f"{name}.value.weight"]) @ weight[:, obs.shape[1] :]


class Step(kit.SoftStep):
    critics = tuple(f"critics.q{k}" for k in range(1, CRITICS + 1))
    targets = tuple(f"targets.q{k}" for k in range(1, CRITICS + 1))

    def alignment(self, p):
        unit = [slopes(p, name, self.action, self.obs) for name in self.critics]
        # Where all units of a critic are silent, its slope is 0.
        unit = [each / np.sqrt((each**2).sum(axis=1, keepdims=True) + 1e-12) for each in unit]
        pairs = [(unit[i] * unit[j]).sum(axis=1) for i in range(CRITICS) for j in range(CRITICS) if i != j]
        return np.mean(np.sum(pairs, axis=0)) / (CRITICS - 1)

    def critic_loss(self, p, target):
        weight = self.settings["diversity_weight"]
        return super().critic_loss(p, target) + (weight * self.alignment(p) if weight else 0.0)

    def metrics(self, p, after):
        aligned = self.alignment(p) if self.settings["diversity_weight"] else 0.0
        return {**super().metrics(p, after), "alignment": aligned}


class TestEDAC(kit.CriticTests):
    Step = Step
    close: ClassVar = {"rtol": 2e-4, "atol": 1e-5}

    def test_sac_n_is_the_same_without_the_alignment(self, built):
        self.check_formulas(built("sac_n"))

    def test_steps_in_one_call_are_those_of_single_calls(self, bench):
        self.check_steps_in_a_call(bench)
