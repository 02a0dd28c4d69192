"""MATD3: MADDPG's step with twin critics, delayed updates and noise on target actions, against float64 NumPy."""

import copy

import kit
import numpy as np
import pytest
from team_critics import AGENTS, BATCH, SPACES, Step, check_step, differ, make, rows_for

pytestmark = pytest.mark.eager

CONTRACT = {"matd3": (*SPACES["discrete"], {}), "matd3, box": (*SPACES["box"], {})}
RESUMES = {}
ALTERNATIVES = ("env.env_id=agent_worlds:Mixed", "env.env_kwargs={actions: box}", "policy.collect.noise.kind=ou")


@pytest.fixture(scope="module")
def made():
    return make("matd3", "box", {"target_noise": 1.0, "noise_clip": 0.7, "policy_delay": 2})


@pytest.fixture
def bench(made):
    differ(made.restore())
    made.policy.learn_steps = 0
    return made


def test_losses_follow_the_formulas_and_targets_follow(bench):
    # The second step of the run is due.
    bench.policy.learn_steps = 1
    noise = bench.upcoming().standard_normal((1, BATCH, AGENTS, 2), dtype=np.float32)
    noise = np.concatenate([np.zeros_like(noise), np.clip(noise, -0.7, 0.7)])
    rows = rows_for(bench)
    check_step(bench, rows, Step(bench.policy, rows, noise))


def test_every_second_step_moves_actors_and_targets(bench):
    rows, start, index = rows_for(bench), copy.deepcopy(bench.policy.state_dict()), np.arange(BATCH)
    before = bench.params
    bench.learn(rows)
    first = bench.params
    still = {name for name in before if name.startswith(("net.", "target_"))}
    kit.check_bits({name: first[name] for name in still}, {name: before[name] for name in still})
    assert not np.array_equal(first["critics.nets.0.value.weight"], before["critics.nets.0.value.weight"])
    bench.learn(rows)
    one_by_one = bench.params
    assert not np.array_equal(one_by_one["net.nets.0.head.linear.weight"], before["net.nets.0.head.linear.weight"])
    bench.policy.load_state_dict(start)
    bench.learn(rows, np.stack([index, index]))
    for name, found in bench.params.items():
        np.testing.assert_allclose(found, one_by_one[name], rtol=1e-6, atol=1e-7, err_msg=name)
