"""P-DQN: one step against float64 NumPy for one and several passes, masks, exploration, and unfit spaces."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, composite, dict_of, mask_of
from float64_networks import actor, choice_values

pytestmark = pytest.mark.eager

CONTRACT = {
    "pdqn": (VECTOR, composite(3, numbers=2), {"policy.model.normalize_obs": True}),
    "pdqn, masked": (dict_of(a=VECTOR, action_mask=mask_of(3)), composite(3, numbers=2), {}),
}
LEARNS = {**kit.LEARNS, "policy.learn.learning_rate": 0.01, "policy.other.eps.end": 0.3}
ALTERNATIVES = ("policy.collect.noise.kind=ou",)
RESUMES = {
    "P-DQN, masked, several passes": (
        "minding/Aim-v0",
        (
            "env.env_kwargs={blocked: 2, own_forces: true}",
            "env.info_keys=[action_mask]",
            "policy.model.multi_pass=true",
        ),
    )
}

SPACE = composite(2, numbers=2)
KINDS = {
    "one pass, masked": {"observation": dict_of(a=VECTOR, action_mask=mask_of(2))},
    "several passes": {"policy.model.multi_pass": True},
}
built, bench = kit.benches(
    "pdqn", action=SPACE, kinds=KINDS, prepare=kit.disturb("target"), learn={"learning_rate": kit.RATE, "tau": kit.TAU}
)


class Step(kit.CriticStep):
    critics = ("net.critic",)

    def __init__(self, bench, rows):
        super().__init__(bench, rows)
        self.owners = np.array([0, 1]) if bench.policy.cfg.model.multi_pass else None
        self.legal = self.next_legal = np.ones((kit.BATCH, 2), bool)
        if self.obs is None:
            self.obs, self.next_obs = self.rows["obs.a"], self.rows["next_obs.a"]
            self.legal, self.next_legal = self.rows["obs.action_mask"], self.rows["next_obs.action_mask"]
        self.choice, self.numbers = self.action[:, 0].astype(int), self.action[:, 1:]

    def q(self, p, part, obs, numbers=None):
        numbers = actor(p, f"{part}.actor", obs) if numbers is None else numbers
        return choice_values(p, f"{part}.critic", numbers, obs, self.owners)

    def target(self, p):
        return self.bootstrapped(np.where(self.next_legal, self.q(p, "target", self.next_obs), -np.inf).max(axis=1))

    def chosen(self, p):
        return self.q(p, "net", self.obs, self.numbers)[np.arange(kit.BATCH), self.choice]

    def critic_loss(self, p, target):
        return 0.5 * ((self.chosen(p) - target) ** 2).mean()

    def actor_loss(self, p):
        return -(self.legal * self.q(p, "net", self.obs)).sum(axis=1).mean()

    def judging(self, p, after):
        return {**p, **{name: array for name, array in after.items() if name.startswith("net.critic.")}}

    def metrics(self, p, after):
        judged = self.actor_loss(self.judging(p, after))
        assert abs(judged - self.actor_loss(p)) > 1e-4
        return {
            "critic_loss": self.critic_loss(p, self.target(p)),
            "q_value": self.chosen(p).mean(),
            "actor_loss": judged,
        }

    def losses(self, p, after):
        target = self.target(p)
        return {
            "critics": (lambda x: self.critic_loss(x, target), p, "net.critic"),
            "actor": (self.actor_loss, self.judging(p, after), "net.actor"),
        }


class TestPDQN(kit.CriticTests):
    Step = Step

    def rows(self, bench):
        choices = bench.rows()["action"][:, :1].copy()
        rows = super().rows(bench)
        rows["action"][:, :1] = choices
        for name in (name for name in rows if name.endswith("action_mask")):
            legal = np.random.default_rng(len(name)).random(rows[name].shape) < 0.6
            rows[name] = legal | np.eye(2, dtype=bool)[np.arange(len(legal)) % 2]
        return rows

    def test_several_passes_have_the_formulas_too(self, built):
        self.check_formulas(built("several passes"))


def test_exploration_is_noise_on_the_numbers_and_random_actions():
    noise = {"policy.collect.noise.sigma": 0.1}
    policy = kit.make_policy("pdqn", VECTOR, composite(3, numbers=2), modes=("collect", "eval"), **noise)
    obs = np.tile(np.float32([0.1, -0.2, 0.3, 0.0]), (4000, 1))
    greedy, noisy = policy.eval_mode.forward(obs), policy.collect_mode.forward(obs)["action"]
    np.testing.assert_array_equal(noisy[:, 0], greedy[:, 0])
    assert np.std(noisy[:, 1:] - greedy[:, 1:]) == pytest.approx(0.1, rel=0.05)
    random = policy.collect_mode.forward(obs, eps=0.6)["action"]
    # Of the random actions, a third has the greedy choice.
    assert np.mean(random[:, 0] != greedy[:, 0]) == pytest.approx(0.4, abs=0.03)
    assert np.abs(random[:, 1:]).max() <= 1.0
