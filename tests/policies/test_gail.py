"""GAIL: PPO by another name with the keys of its rewards; see also `rewards/test_gail_rewards.py`."""

import numpy as np
from fakes import VECTOR, space_of
from of_algorithms import SMALL, imitated

from minding.configs import compile_run
from minding.configs.chains import get_chain
from minding.engine import Config, Task
from minding.policies import get_policy_class

CONTRACT = {"gail": (VECTOR, space_of(2), {})}
ALTERNATIVES = ("policy.model.memory=gru",)
RESUMES = {"GAIL, with a penalty": ("CartPole-v1", ("policy.other.gail.gradient_penalty=1",))}


def test_the_environments_rewards_are_not_learned_from(tmp_path):
    user = Config(env={"env_id": "CartPole-v1"}, policy={"type": "gail"})
    settings = [*SMALL, *imitated("gail"), "policy.collect.n_sample=64", f"run.out_dir={tmp_path}"]
    cfg = compile_run(user, settings)
    task, seen = Task(), []
    with task.start(ctx=get_chain("recorded_reward").context()):
        policy = get_policy_class("gail")(cfg)
        get_chain("recorded_reward").fill(task, cfg, policy)
        task.use(lambda ctx: seen.append(ctx.trajectories.reward), before="gae_estimator")
        task.run(max_step=1)
    # Those of CartPole are all 1.
    assert np.unique(seen[0]).size > 8
    assert (seen[0] > 0).all()
