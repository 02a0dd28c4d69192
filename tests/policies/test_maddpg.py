"""MADDPG: one update against float64 NumPy with masks and deaths, for discrete and continuous actions."""

import kit
import numpy as np
import pytest
from team_critics import AGENTS, BATCH, SPACES, Step, check_step, differ, make, rows_for

from minding.policies import get_policy_class

pytestmark = pytest.mark.eager

CONTRACT = {
    "maddpg": (*SPACES["discrete"], {"policy.model.normalize_obs": True}),
    "maddpg, box": (*SPACES["box"], {"policy.model.central": False}),
}
LEARNS = {
    **kit.LEARNS,
    "run.max_env_step": 800,
    "policy.collect.random_steps": 200,
    "policy.learn.learning_rate": 0.01,
    "policy.learn.update_per_collect": 8,
    "policy.learn.tau": 0.05,
}
RESUMES = {
    "MADDPG with agents who leave, come late and act in spaces of different sizes": (
        "agent_worlds:Mixed",
        ("env.env_kwargs={actions: box, leave: 2, late: 1}", "policy.collect.noise.kind=ou"),
    )
}
ALTERNATIVES = ("env.env_id=agent_worlds:Mixed", "env.env_kwargs={actions: box}", "policy.collect.noise.kind=ou")
KINDS = [*SPACES, "team"]


@pytest.fixture(scope="module")
def made():
    """Policies for discrete and for continuous actions with rewards of each agent, and one for a team's reward."""
    return {kind: make("maddpg", kind, {"temperature": 0.7, "logit_weight": 0.1}) for kind in KINDS}


@pytest.fixture
def benches(made):
    """They, as they were built, with targets that differ from the networks."""
    for bench in made.values():
        differ(bench.restore())
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_losses_follow_the_formulas_and_targets_follow(benches, kind):
    bench = benches[kind]
    noise = np.zeros((2, BATCH, AGENTS, 2))
    if kind != "box":
        noise = bench.upcoming().gumbel(size=(2, 1, BATCH, AGENTS, 3))[:, 0]
    rows = rows_for(bench)
    check_step(bench, rows, Step(bench.policy, rows, noise))


def test_each_agent_acts_by_its_own_network(benches):
    for kind, policy in ((kind, bench.policy) for kind, bench in benches.items()):
        rng = np.random.default_rng(1)
        seen = rng.standard_normal((5, 1, 4)).astype(np.float32).repeat(AGENTS, axis=1)
        obs = {"observation": seen, "alive": np.ones((5, AGENTS), bool)}
        if kind != "box":
            obs["action_mask"] = np.ones((5, AGENTS, 3), bool)
        rows = policy.eval_mode.actor.rows(obs)
        made = policy.actors["eval"].outputs(rows)[0].reshape(5, AGENTS, -1)
        leaves = [seen[:, 0]] if kind == "box" else [obs["action_mask"][:, 0], seen[:, 0]]
        for m, net in enumerate(policy.net.nets):
            np.testing.assert_array_equal(made[:, m], net.host()(leaves)[0])
        assert len(np.unique(made[0], axis=0)) == AGENTS


def test_discrete_actions_are_drawn_and_others_have_noise(benches):
    policies = {kind: bench.policy for kind, bench in benches.items()}
    obs = {"observation": np.zeros((500, AGENTS, 4), np.float32), "alive": np.ones((500, AGENTS), bool)}
    noisy = policies["box"].collect_mode.forward(obs)["action"] - policies["box"].eval_mode.forward(obs)
    assert 0.05 < noisy.std() < 0.15
    obs["action_mask"] = np.tile(np.array([True, False, True]), (500, AGENTS, 1))
    drawn = policies["discrete"].collect_mode.forward(obs)["action"]
    assert all(set(column) == {0, 2} for column in drawn.T)
    assert all(len(set(column)) == 1 for column in policies["discrete"].eval_mode.forward(obs).T)


def test_critics_that_are_not_central_see_their_own_agent(tiny_config):
    cfg = tiny_config("maddpg", *SPACES["box"], **{"policy.model.central": False})
    critics = get_policy_class("maddpg")(cfg).root.critics
    assert [net.seen for net in critics.nets] == [(0,), (1,), (2,)]
    assert critics.nets[0].torso.layers[0].weight.shape == (8, 6)
