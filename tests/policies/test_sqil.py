"""SQIL and prior data: which rewards and which shares of minibatches are learned from, and what is refused."""

import dataclasses
import shutil

import numpy as np
import pytest
from fakes import VECTOR, space_of
from of_algorithms import SMALL, environment, recorded

from minding.configs import compile_run
from minding.configs.chains import get_chain, prior_data
from minding.engine import Config, Task
from minding.engine.buffers import MixedBuffer
from minding.engine.data.dataset import load_dataset
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.errors import CheckpointError, ConfigError
from minding.middleware import recorded_data_pusher
from minding.policies import get_policy_class
from minding.policies.discrete_sac import DiscreteSAC
from minding.policies.sac import SAC

CONTRACT = {"sqil": (VECTOR, space_of(2), {})}
RESUMES = {"SQIL": ("Pendulum-v1", ())}
SHORT = (
    *SMALL, "policy.collect.n_sample=16", "policy.learn.warmup=16", "policy.learn.batch_size=8",
    "policy.learn.update_per_collect=1", "policy.other.buffer_size=100",
)  # fmt: skip


def config(algorithm, *settings, chain=None):
    env_id = environment(algorithm)
    user = Config(env={"env_id": env_id}, policy={"type": algorithm}, **({"chain": chain} if chain else {}))
    return compile_run(user, [*SHORT, f"policy.other.data={recorded(env_id)}", *settings])


def batches_of(cfg, monkeypatch, iterations=2):
    """The minibatches of some iterations, and the chain's names."""
    chain, task, seen = get_chain(cfg.chain), Task(), []
    with task.start(ctx=chain.context()):
        policy = get_policy_class(cfg.policy.type)(cfg)
        sample = MixedBuffer.sample
        monkeypatch.setattr(MixedBuffer, "sample", lambda *args: (seen.append(sample(*args)), seen[-1])[1])
        chain.fill(task, cfg, policy)
        task.run(max_step=iterations)
        return seen, repr(task)


def read(batch, name):
    return batch.layout.read(batch.tables.host, name)[batch.index[0]]


@pytest.mark.parametrize("algorithm", ["sqil", "discrete_sqil"])
def test_half_of_a_minibatch_is_the_experts_whose_rewards_are_1(algorithm, monkeypatch):
    cfg = config(algorithm)
    seen, chain = batches_of(cfg, monkeypatch)
    assert type(get_policy_class(algorithm)(cfg, ("eval",))) is (SAC if algorithm == "sqil" else DiscreteSAC)
    assert chain.index("StepCollector") < chain.index("sqil_data_pusher") < chain.index("OffPolicyLearner")
    for batch in seen:
        assert read(batch, "reward").tolist() == [0.0] * 4 + [1.0] * 4
        expert = load_dataset(recorded(environment(algorithm))).obs[""]
        assert all((expert == row).all(axis=1).any() for row in read(batch, "obs")[4:])


@pytest.mark.parametrize("algorithm", ["sac", "dqn"])
def test_prior_data_keep_their_rewards_and_have_their_share(algorithm, monkeypatch):
    cfg = config(algorithm, "policy.other.data_share=0.25", chain="prior_data")
    seen, chain = batches_of(cfg, monkeypatch)
    data = load_dataset(recorded(environment(algorithm)))
    assert ("eps_greedy_handler" in chain) == (algorithm == "dqn")
    for batch in seen:
        obs, reward = read(batch, "obs"), read(batch, "reward")
        for row, value in zip(obs[6:], reward[6:]):
            assert value in data.reward[(data.obs[""] == row).all(axis=1)]
        assert not any((data.obs[""] == row).all(axis=1).any() for row in obs[:6])


def test_a_resumed_run_stores_its_recorded_data(tmp_path):
    cfg = config("sac", chain="prior_data")
    policy = get_policy_class("sac")(cfg, ("learn",))
    _, _, part, data = prior_data.parts(cfg, policy)
    pusher, told = recorded_data_pusher(part, data), []
    part.watch(lambda rows: told.append(len(rows["reward"])))
    for _ in range(2):
        pusher(None)
    state = pusher.state_dict()
    _, _, part, _ = prior_data.parts(cfg, policy)
    part.watch(lambda rows: told.append(len(rows["reward"])))
    resumed = recorded_data_pusher(part, data)
    resumed.load_state_dict(state)
    resumed(None)
    # A resumed run stores the data again, and its policy, whose moments contain them, is not told again.
    assert len(part) == len(data)
    assert told == [len(data)]
    shutil.copytree(recorded("Pendulum-v1"), tmp_path / "same")
    other = load_dataset(tmp_path / "same")
    assert other.digest == data.digest
    save_dataset(tmp_path / "changed", dataclasses.replace(data, reward=data.reward + np.float32(1.0)))
    _, _, part, _ = prior_data.parts(cfg, policy)
    with pytest.raises(CheckpointError, match="learned from other recorded data"):
        recorded_data_pusher(part, load_dataset(tmp_path / "changed")).load_state_dict(state)
    with pytest.raises(ConfigError, match="the data have 300: make it larger"):
        recorded_data_pusher(prior_data.parts(cfg, policy)[1], data)
