"""Chains of configurations: found by their files, and what they refuse before anything is built."""

import numpy as np
import pytest
from board_toys import Twig

from minding import training
from minding.configs import compile_run
from minding.configs.chains import check_chain, get_chain, hindsight
from minding.engine import Config, OnlineRLContext, Task
from minding.envs.games.board import RulesEnv

# Hindsight


def goal_settings(env_id, algorithm="dqn", *overrides):
    user = Config(chain="hindsight", env={"env_id": env_id}, policy={"type": algorithm})
    return compile_run(user, overrides)


@pytest.mark.parametrize(
    ("env_id", "algorithm", "k"), [("minding/BitFlip-v0", "dqn", 4), ("minding/PointReach-v0", "td3", 2)]
)
def test_transitions_are_stored_and_again_with_k_goals(env_id, algorithm, k, monkeypatch):
    made = []
    make = hindsight.replay_buffer
    monkeypatch.setattr(hindsight, "replay_buffer", lambda *args, **kw: made.append(make(*args, **kw)) or made[-1])
    few = ("policy.model.hidden=[8]", "policy.collect.n_sample=16", f"policy.other.hindsight.k={k}")
    cfg = goal_settings(env_id, algorithm, *few, "policy.learn.warmup=10000")
    running, stored = np.zeros(cfg.env.collector_env_num, int), []

    def watch(ctx):
        over = stored[-1][1] if stored else 0
        for ended in ctx.trajectories.terminated | ctx.trajectories.truncated:
            running[:] += 1
            over += running[ended].sum()
            running[ended] = 0
        stored.append((ctx.env_step, over, len(made[0])))

    task = Task()
    with task.start(ctx=OnlineRLContext()):
        training.build(task, cfg)
        task.use(watch)
        task.run(max_step=30)
    assert [rows for *_, rows in stored] == [collected + k * over for collected, over, _ in stored]
    assert 0 < stored[-1][1] < stored[-1][0] == 480


# Self-play


class WithoutRules(RulesEnv):
    def __init__(self):
        super().__init__("tic_tac_toe")
        self.game = None


class OtherRules(RulesEnv):
    def __init__(self):
        super().__init__("tic_tac_toe")
        self.game = Twig()


def board_settings(env_id="minding/TicTacToe-v0", algorithm="alphazero", *overrides):
    return compile_run(Config(chain="self_play", env={"env_id": env_id}, policy={"type": algorithm}), overrides)


def test_it_is_the_chain_of_the_algorithm():
    cfg = compile_run("connect_four_alphazero")
    check_chain(cfg)
    assert cfg.chain == "self_play"
    assert get_chain(cfg.chain).evaluate is not None
