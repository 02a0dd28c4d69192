"""GAIL: PPO by another name with the keys of its rewards, whose own tests are `rewards/test_gail_rewards.py`."""

import numpy as np
import pytest
from fakes import VECTOR, Batches, discrete, rows_of, space_of
from of_algorithms import SMALL, imitated

from minding.configs import compile_run
from minding.configs.chains import check_chain, get_chain
from minding.engine import Config, Task
from minding.engine.errors import ConfigError
from minding.policies import get_policy_class
from minding.policies.ppo import PPO

CONTRACT = {"gail": (VECTOR, discrete(3), {}), "gail, box": (VECTOR, space_of(2), {})}
ALTERNATIVES = ("policy.model.memory=gru",)
RESUMES = {"GAIL, with a penalty": ("CartPole-v1", ("policy.other.gail.gradient_penalty=1",))}


def test_an_update_is_that_of_ppo_on_the_same_rows(tiny_config):
    found = []
    for name in ("gail", "ppo"):
        policy = get_policy_class(name)(tiny_config(name, VECTOR, discrete(3)))
        assert type(policy) is PPO
        batches = Batches(policy, 32)
        rows = rows_of(batches.layout, 32, np.random.default_rng(0), {"action": 3})
        policy.learn_mode.forward(batches(rows, np.arange(32).reshape(2, 16)))
        found.append(policy.state_dict()["params"])
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])


def test_the_environments_rewards_are_not_learned_from(tmp_path):
    user = Config(env={"env_id": "CartPole-v1"}, policy={"type": "gail"})
    settings = [*SMALL, *imitated("gail"), "policy.collect.n_sample=64", f"run.out_dir={tmp_path}"]
    cfg = compile_run(user, settings)
    task, seen = Task(), []
    with task.start(ctx=get_chain("gail").context()):
        policy = get_policy_class("gail")(cfg)
        get_chain("gail").fill(task, cfg, policy)
        task.use(lambda ctx: seen.append(ctx.trajectories.reward), before="gae_estimator")
        task.run(max_step=1)
    # Those of CartPole are all 1.
    assert np.unique(seen[0]).size > 8
    assert (seen[0] > 0).all()


def test_data_have_to_be_named_and_to_be_enough():
    user = Config(env={"env_id": "CartPole-v1"}, policy={"type": "gail"})
    with pytest.raises(ConfigError, match=r"policy.other.data is not given"):
        check_chain(compile_run(user))
