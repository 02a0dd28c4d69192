"""Algorithms learn what they must bootstrap for, in seconds; long runs are in `make proofs`.

One algorithm of each chain and kind of target does: the formulas of all are tested in `policies/`.
"""

import numpy as np
import of_algorithms
import pytest
from probes import Invest
from team_values import ONE_STEP, greedy_return

from minding import training
from minding.configs import compile_run
from minding.engine import Config, OnlineRLContext, Task
from minding.policies import ALGORITHMS

KINDS = {"discrete": {}, "box": {"continuous": True}, "composite": {"joined": True}}
"""Arguments of the probe for actions of a kind."""
FAST = ("ppo",)
LEARNING = [name for name in ALGORITHMS if of_algorithms.constant(name, "LEARNS", None)]


def train(algorithm):
    """The policy after 2,400 environment steps, or as many as its settings say, of the algorithm's own chain."""
    # Without a critic a time limit is an end.
    limit = 2 if of_algorithms.constant(algorithm, "BOOTSTRAPS", True) else 10
    user = {
        "seed": 0,
        "env": {
            "env_id": "probes:Team" if ALGORITHMS[algorithm].agents == "several" else "probes:Invest",
            "env_kwargs": {**KINDS[ALGORITHMS[algorithm].actions[0]], "limit": limit},
            "collector_env_num": 4,
            "evaluator_env_num": 1,
        },
        "policy": {"type": algorithm, "model": {"hidden": [16]}},
    }
    always = {"policy.learn.gamma": Invest.GAMMA, "policy.eval.freq": 10**6, "run.max_env_step": 2400}
    overrides = {**always, **of_algorithms.constant(algorithm, "LEARNS")}
    cfg = compile_run(Config(user), [f"{key}={value}" for key, value in overrides.items()])
    if "deterministic" in cfg.policy.eval:
        cfg.policy.eval.deterministic = True
    task = Task()
    with task.start(ctx=OnlineRLContext()):
        policy = training.build(task, cfg)
        task.run(max_step=cfg.run.max_env_step // cfg.policy.collect.n_sample)
    return policy


def seen(policy, state):
    """What is seen of a state, by all agents where there are several."""
    agents = policy.spec["num_agents"]
    if agents == 1:
        return np.array([state])
    each = np.full((1, agents), state)
    return {"observation": each, "alive": np.ones((1, agents), bool), "state": each.astype(np.float32)}


def choice(policy, state):
    policy.eval_mode.reset()
    action = policy.eval_mode.forward(seen(policy, state))
    return int(action[0, 0] > 0.0) if action.ndim == 2 else int(action[0])


@pytest.mark.parametrize(
    "algorithm", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in LEARNING]
)
def test_what_pays_later_is_chosen(algorithm):
    policy = train(algorithm)
    assert choice(policy, 0) == 1
    if "value" in policy.collect_mode.record_fields:
        value = policy.collect_mode.value(seen(policy, 0))
        np.testing.assert_allclose(value, np.full(value.shape, Invest.VALUES[0]), rtol=0.2)


DIFFERENT = ("env.env_kwargs={payoff: [[0, 5], [5, 0]]}", "policy.learn.learning_rate=0.01", "run.max_env_step=3200")
DIFFERENT += ("policy.collect.n_sample=80", "policy.eval.deterministic=true")
"""Two agents who see the same get 5 if their actions differ."""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
@pytest.mark.parametrize(
    "algorithm", [*FAST, *(pytest.param(x, marks=pytest.mark.slow) for x in ("mappo", "ippo", "a2c"))]
)
def test_agents_that_see_the_same_differ_by_their_numbers(algorithm, seed):
    assert greedy_return(algorithm, ONE_STEP, 40, *DIFFERENT, f"seed={seed}") == 5.0
    if not seed:
        assert greedy_return(algorithm, ONE_STEP, 40, *DIFFERENT, "env.agent_ids=false") == 0.0
