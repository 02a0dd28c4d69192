"""DQN: two steps against float64 NumPy, the target's schedule, exploration."""

import action_values as av
import numpy as np
import pytest
from fakes import VECTOR, discrete

pytestmark = pytest.mark.eager

CONTRACT = {
    "dqn": (VECTOR, discrete(3), {"policy.learn.target.freq": 4, "policy.model.dueling": True}),
    "dqn, prioritized": (VECTOR, discrete(3), {**av.PRIORITIZED, "policy.learn.target.freq": 4}),
    "dqn, masked": (av.MASKED, discrete(3), {}),
}
RESUMES = {
    "DQN, n-step": ("CartPole-v1", ("policy.learn.nstep=2", "policy.learn.target.freq=5")),
    "DQN with rewards for novelty": (
        "CartPole-v1",
        ("policy.learn.nstep=2", "policy.other.rnd.weight=0.5", "policy.other.icm.weight=0.5"),
    ),
    "DQN, images stored once": ("minding/PixelCatch-v0", ("policy.learn.nstep=2",)),
    "DQN with hindsight": ("minding/BitFlip-v0", ("chain=hindsight",)),
    "DQN, prioritized, with action masks": (
        "minding/MaskedGrid-v0",
        (*("env.info_keys=[action_mask]", "policy.other.replay=prioritized"), "policy.other.priority.beta_steps=50"),
    ),
}
ALTERNATIVES = av.ALTERNATIVES
LEARNS = av.LEARNS

SOFT = {"double": False, "target.kind": "soft", "target.tau": 1e-12, "grad_norm": 0.0}
KINDS = {
    "double, periodic, prioritized": {
        **av.PRIORITIZED,
        "learn": {"target.freq": 4},
        "policy.model.normalize_obs": True,
    },
    "plain, soft, dueling": {**av.DUELING, "learn": SOFT},
    "Munchausen": {"learn": {"munchausen": 0.9, "munchausen_temperature": 0.5, "target.freq": 4}},
}
built, bench, each = av.value_benches("dqn", KINDS)


class TestUpdate(av.ActionValueTests):
    algorithm = "dqn"

    def values(self, p, part, obs):
        return av.np_heads(p, part, av.np_features(p, part, obs))

    def goal(self, bench, p, rows, draw):
        if weight := bench.settings.munchausen:
            tau, decay = bench.settings.munchausen_temperature, rows["discount"] * (1.0 - rows["terminated"])
            now, then = (self.policy_of(self.values(p, "target", rows[each]) / tau) for each in ("obs", "next_obs"))
            after = (np.exp(then) * (self.values(p, "target", rows["next_obs"]) - tau * then)).sum(axis=1)
            bonus = tau * now[av.AT, rows["action"]]
            # Some are beyond the limit, and some are not.
            assert 0 < (bonus < -1.0).sum() < len(bonus)
            return rows["reward"] + weight * np.clip(bonus, -1.0, 0.0) + decay * after
        best = self.best(bench, p, rows["next_obs"])
        return av.np_returns(rows, self.of_best(p, rows["next_obs"], best)[:, None])[:, 0]

    def policy_of(self, scores):
        return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

    def step(self, bench, p, rows, goal, draw):
        q = self.values(p, "net", rows["obs"])[av.AT, rows["action"]]
        return av.np_huber(q - goal), q, np.abs(q - goal)

    def of_best(self, p, obs, best):
        return self.values(p, "target", obs)[np.arange(len(obs)), best]

    def test_the_norm_of_gradients_is_reported_where_it_is_bounded(self, built):
        for kind, bound in zip(KINDS, (True, False, True), strict=True):
            metrics = self.check_update(built(kind))[-1]
            assert (metrics["grad_norm"] > 0) == bound


def weights(cell):
    return [p.asnumpy().copy() for p in cell.get_parameters()]


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b))


@pytest.fixture
def fresh(built):
    """The first policy as it was built, before anything is done to its target."""
    bench = built()
    bench.restore()
    return bench


def test_a_periodic_target_stays_until_it_is_due(fresh):
    start, before, rows = fresh.policy.state_dict(), weights(fresh.root.target.torso), av.random_rows(fresh)
    for done, changes, is_online in ((0, False, False), (1, False, False), (2, True, True), (3, True, False)):
        fresh.policy.load_state_dict({**start, "learn_steps": done})
        fresh.learn(rows, av.INDEX)
        after = weights(fresh.root.target.torso)
        # Steps done + 1 and done + 2 of the run; the copy follows the fourth.
        assert equal(before, after) != changes
        assert equal(after, weights(fresh.root.net.torso)) == is_online


def test_a_soft_target_moves_a_little_in_every_call(built):
    bench = built("plain, soft, dueling")
    bench.settings.target.tau = 0.25
    before = weights(bench.root.target.torso)
    bench.learn(av.random_rows(bench), av.INDEX)
    # Twice, towards a network that stays.
    for old, online, new in zip(before, weights(bench.root.net.torso), weights(bench.root.target.torso), strict=True):
        np.testing.assert_allclose(new, online + 0.75**2 * (old - online), rtol=1e-4, atol=1e-6)


def test_eps_is_the_share_of_random_actions(bench):
    obs = np.random.default_rng(1).standard_normal((6000, 4)).astype(np.float32)
    greedy, collect = bench.policy.eval_mode.forward(obs), bench.policy.collect_mode.forward
    assert np.array_equal(collect(obs, eps=0.0)["action"], greedy)
    # A random action is the greedy one in a third of the cases.
    assert (collect(obs, eps=0.3)["action"] != greedy).mean() == pytest.approx(0.2, abs=0.02)


def test_the_normalizer_learns_from_sampled_rows_only(bench):
    values = av.random_rows(bench)
    values["obs"][av.BATCH :] = 1e6
    bench.learn(values, av.INDEX)
    for cell in (bench.root.net, bench.root.target):
        moments = cell.encoder.encoders[0].normalizer.moments
        assert moments.count == av.BATCH
        np.testing.assert_allclose(moments.mean, values["obs"][: av.BATCH].mean(0), rtol=1e-5)
