"""Parts of one's own, as a user's module has them: encoders, an algorithm, a chain and middleware."""

import dataclasses
import random

import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from minding.configs.chains import Chain, get_chain
from minding.engine import Middleware, OnlineRLContext
from minding.engine.buffers import Priority, ReplayBuffer
from minding.engine.config.config import RecordedFolder
from minding.policies import get_algorithm
from minding.policies.ppo import PPO, PPOCell
from minding.policies.settings import replayed_critics, shared
from minding.policies.td3 import TD3


class Plain(nn.Cell):
    """An encoder without a NumPy form."""

    def __init__(self, space, model, rng):
        super().__init__()
        self.out_features = 6
        self.weight = nn.Dense(4, 6, weight_init=Tensor(rng.normal(size=(6, 4)).astype(np.float32)))

    def construct(self, leaves):
        return ops.ReLU()(self.weight(leaves[0]))


class Both(Plain):
    """The same with one."""

    def host(self):
        return InNumPy(self.weight.weight.asnumpy(), self.weight.bias.asnumpy())


class Layered(Plain):
    """The same of layers only."""

    def __init__(self, space, model, rng):
        super().__init__(space, model, rng)
        self.relu = nn.ReLU()

    def construct(self, leaves):
        return self.relu(self.weight(leaves[0]))


class Copied(Plain):
    """Its form keeps the weights with which it was made."""

    def host(self):
        return InNumPy(self.weight.weight.asnumpy().copy(), self.weight.bias.asnumpy())


class InNumPy:
    def __init__(self, weight, bias):
        self.weight, self.bias = weight, bias

    def __call__(self, leaves):
        return np.maximum(leaves[0] @ self.weight.T + self.bias, 0.0)


class Drawn(nn.Cell):
    """Draws from everything but the generator that it is given."""

    def __init__(self, space, model, rng):
        super().__init__()
        self.out_features = 6
        self.dense = nn.Dense(4, 6)
        self.dropout = nn.Dropout(p=0.5)
        self.offset = Parameter(Tensor(np.random.normal(size=6).astype(np.float32) + random.random()))

    def construct(self, leaves):
        return self.dense(leaves[0]) + self.offset


class OfDrawn(PPO):
    """An auxiliary head that is drawn in the same way, where it learns."""

    def make_root(self, net, rng):
        net.auxiliary = nn.Dense(6, 2)
        return super().make_root(net, rng)


class NoArguments(Plain):
    def __init__(self):
        super().__init__(None, None, np.random.default_rng(0))


class Stuck(Plain):
    def construct(self, leaves):
        return self.missing(leaves[0])


class BrokenForm(Plain):
    """Its NumPy form fails."""

    def host(self):
        return InNumPy(self.weight.weight.asnumpy().T, self.weight.bias.asnumpy())


class NoForm(Plain):
    def host(self):
        return self.weight.misspelled


class Unbuilt(PPO):
    def make_network(self, rng):
        return self.cfg.model.misspelled[0]


class Greedy(PPO):
    def __init__(self):
        pass


class Narrow(Plain):
    def construct(self, leaves):
        return leaves[0]


class Half(Plain):
    def construct(self, leaves):
        return super().construct(leaves).half()


class Unsized(Plain):
    def __init__(self, space, model, rng):
        super().__init__(space, model, rng)
        del self.out_features


class MyPPO(PPO):
    name = "mine"


class RecordedLearn(shared.TwinDelayedLearn, shared.NStep, shared.FromData, shared.Discounted):
    pass


class RecordedData(shared.RewardScales, RecordedFolder):
    pass


class RecordedSettings(replayed_critics.TD3Settings):
    """The settings of TD3 where it learns from recorded data."""

    learn: RecordedLearn
    other: RecordedData


class Recorded(TD3):
    """TD3 on recorded data."""

    algorithm = dataclasses.replace(
        get_algorithm("td3"), name="recorded", settings=RecordedSettings, chain="offline", unit="train_iter"
    )


def my_chain() -> Chain:
    """The chain of on-policy algorithms, made here."""
    return Chain(get_chain("on_policy").fill, OnlineRLContext)


class Count:
    """Logs how often it was called; its count is a part of a run."""

    def __init__(self, cfg):
        self.count = 0

    def __call__(self, ctx):
        self.count += 1
        ctx.train_output = {**(ctx.train_output or {}), "count": float(self.count)}

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


class Forgetful(Count):
    """Does not find what it has saved."""

    def load_state_dict(self, state):
        self.count = state["counts"]


class Deaf(Count):
    """Takes no state."""

    def load_state_dict(self):
        pass


def seen(ctx):
    """A middleware itself."""
    assert ctx.trajectories is not None


def made(cfg, task) -> Middleware:
    assert task.ctx is not None
    return lambda ctx: None


class Unmade:
    def __init__(self, cfg):
        raise KeyError("misspelled")

    def __call__(self, ctx):
        pass


def no_chain() -> Chain:
    raise KeyError("misspelled")


def silent(cfg):
    """Does not say what it makes."""
    return lambda ctx: None


NUMBER = 7


class Branches(Plain):
    """What its graph computes depends on how many rows there are, which a file with a free batch size cannot hold."""

    def construct(self, leaves):
        return self.weight(leaves[0]) * leaves[0].shape[0]


class UncompiledCell(PPOCell):
    def loss(self, batch):
        loss, metrics = super().loss(batch)
        return loss + self.penalty(loss), metrics


class Uncompiled(PPO):
    """Its loss calls what is not there."""

    def make_root(self, net, rng):
        return UncompiledCell(net, self.cfg.learn)


class RecentBuffer(ReplayBuffer):
    """Samples the newest tenth of its rows only."""

    def __init__(self, cfg, fields):
        super().__init__(cfg.policy.other.buffer_size, fields, seed=cfg.seed)

    def sample(self, updates, batch_size):
        age = self.rng.integers(0, max(1, len(self) // 10), size=(updates, batch_size), dtype=np.int32)
        return self.ring.batch((self.ring.cursor - 1 - age) % self.capacity)


class ByError(ReplayBuffer):
    """Samples by priority."""

    prioritized = True

    def __init__(self, cfg, fields):
        super().__init__(cfg.policy.other.buffer_size, fields, priority=Priority(alpha=1.0), seed=cfg.seed)


class NoBuffer:
    def __init__(self, cfg, fields): ...


class BrokenBuffer(ReplayBuffer):
    def __init__(self, cfg, fields):
        raise KeyError(cfg.policy.other.buffer_size)
