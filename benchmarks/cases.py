"""The work to be timed, written down once for both sides.

Only the standard library is imported here: the peers read this module in their own virtual environment.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

KINDS = ("vectors", "images", "recurrent", "teams", "recorded data")
"""Kinds of work, in the order of the table."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One algorithm on one environment.

    Attributes:
      name: what `--only` and the scripts call it.
      env_id: Gymnasium id.
      num_envs: environments that step together.
      hidden: width of each hidden layer of every network.
      batch_size: rows of one gradient step.
      learning_rate: Adam's learning rate at the start.
      gamma: discount.
      iteration_steps: env steps between two calls of the learner; runs last a multiple of it.
      warmup_steps: env steps before the clock starts, past compilation and `learning_starts`.
      window_steps: env steps on the clock, some seconds for the slower side.
      targets: peer -> the least our speed has to be, in units of the peer's.
      threads: threads that compute an update, on both sides.
      envpool: whether EnvPool (the package `envpool`) steps the environments, on both sides.
      image: shape of the observed images, channels first; empty for observations of numbers.
      convolutions: channels, kernel and stride of each convolution over them, followed by a layer of `image_features`.
      image_features: units of that layer; `hidden` layers follow it.
    """

    name: str
    env_id: str
    num_envs: int
    hidden: tuple[int, ...]
    batch_size: int
    learning_rate: float
    gamma: float = 0.99
    iteration_steps: int
    warmup_steps: int
    window_steps: int
    targets: Mapping[str, float]
    threads: int = 1
    envpool: bool = False
    image: tuple[int, ...] = ()
    convolutions: tuple[tuple[int, int, int], ...] = ()
    image_features: int = 0

    @property
    def kind(self) -> str:
        """What kind of work this is, one of `KINDS`."""
        match self:
            case OfflineCase():
                return "recorded data"
            case QMIXCase() | MAPPOCase():
                return "teams"
            case RecurrentPPOCase():
                return "recurrent"
        return "images" if self.image else "vectors"

    @property
    def first_steps(self) -> int:
        """Env steps to the end of the first iteration that learns."""
        return self.iteration_steps

    def window(self, scale: float) -> int:
        """Env steps on the clock, `window_steps` times `scale`, rounded up to whole iterations."""
        iterations = -(-round(self.window_steps * scale) // self.iteration_steps)
        return max(1, iterations) * self.iteration_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOCase(Case):
    """PPO with separate tanh networks for policy and value.

    Attributes:
      rollout_length: steps of each environment between two updates.
      epochs: passes over a rollout.
      minibatches: gradient steps of one epoch; `batch_size` rows each.
      gae_lambda: decay of generalized advantage estimation.
      clip_ratio: range of the policy ratio, and of the value change.
      entropy_weight: weight of the entropy bonus.
      value_weight: weight of the value loss.
      grad_norm: the global gradient norm is clipped to it.
    """

    rollout_length: int
    epochs: int = 4
    minibatches: int = 4
    gae_lambda: float = 0.95
    clip_ratio: float = 0.2
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    grad_norm: float = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecurrentPPOCase(PPOCase):
    """PPO with an LSTM that policy and value share, trained on the whole rollout of each environment.

    Attributes:
      memory_size: units of the LSTM.
    """

    memory_size: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class A2CCase(Case):
    """A2C with separate tanh networks for policy and value: one step of Adam for each rollout.

    Attributes:
      rollout_length: steps of each environment between two updates.
      gae_lambda: decay of generalized advantage estimation; 1 gives n-step returns.
      entropy_weight: weight of the entropy bonus.
      value_weight: weight of the value loss.
      grad_norm: the global gradient norm is clipped to it.
    """

    rollout_length: int
    gae_lambda: float = 1.0
    entropy_weight: float = 0.01
    value_weight: float = 0.5
    grad_norm: float = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayCase(Case):
    """An off-policy algorithm: one gradient step every `iteration_steps` env steps, relu networks.

    Attributes:
      buffer_size: capacity of the replay buffer in transitions.
      learning_starts: env steps before the first gradient step.
    """

    buffer_size: int
    learning_starts: int

    @property
    def first_steps(self) -> int:
        return (-(-self.learning_starts // self.iteration_steps) + 1) * self.iteration_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class DQNCase(ReplayCase):
    """DQN with a target network that is copied now and then.

    Attributes:
      target_update_freq: env steps between two copies.
      eps: chance of a random action, constant so that both sides run the network equally often.
      grad_norm: the global gradient norm is clipped to it.
    """

    target_update_freq: int = 1000
    eps: float = 0.05
    grad_norm: float = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SACCase(ReplayCase):
    """SAC with twin critics and a learned temperature.

    Attributes:
      tau: share of the critics that moves into their targets at every gradient step.
    """

    tau: float = 0.005


@dataclasses.dataclass(frozen=True, kw_only=True)
class QRDQNCase(DQNCase):
    """QR-DQN: the quantiles of each action's return instead of its mean.

    Attributes:
      quantiles: of each action.
    """

    quantiles: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TD3Case(ReplayCase):
    """TD3 with twin critics and an actor that moves in every second gradient step.

    Attributes:
      tau: share of the networks that moves into their targets together with the actor.
      policy_delay: gradient steps of the critics for each one of the actor.
      target_noise: deviation of the noise on the target action.
      noise_clip: limit of that noise.
      sigma: deviation of the noise on collected actions.
    """

    tau: float = 0.005
    policy_delay: int = 2
    target_noise: float = 0.2
    noise_clip: float = 0.5
    sigma: float = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class QMIXCase(ReplayCase):
    """QMIX of recurrent agents, from whole episodes of one length; `batch_size` counts episodes.

    Attributes:
      episode_length: the most env steps of an episode, which is also what an environment makes in an iteration.
      updates: gradient steps of an iteration.
      memory_size: units of the agents' GRU.
      mixer_size: units of the mixer.
      hypernet_size: hidden units of the networks that make the mixer's weights.
      target_update_freq: gradient steps between two copies of the target network.
      eps: chance of a random action, constant so that both sides run the network equally often.
      grad_norm: the global gradient norm is clipped to it.
    """

    episode_length: int
    updates: int
    memory_size: int = 64
    mixer_size: int = 32
    hypernet_size: int = 64
    target_update_freq: int = 200
    eps: float = 0.05
    grad_norm: float = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class MAPPOCase(Case):
    """MAPPO with separate tanh networks for the agents' policy and for the value of the state, from whole episodes.

    `batch_size` counts rows of single agents.

    Attributes:
      episode_length: the most env steps of an episode.
      rollout_length: steps of each environment between two updates.
      epochs: passes over a rollout.
      minibatches: gradient steps of one epoch; `batch_size` rows each.
      gae_lambda: decay of generalized advantage estimation.
      clip_ratio: range of the policy ratio.
      entropy_weight: weight of the entropy bonus.
      value_weight: weight of the value loss.
      huber_delta: where the value loss becomes linear.
      value_decay: of the running moments of the returns, by which values are normalized.
      grad_norm: the global gradient norm is clipped to it.
    """

    episode_length: int
    rollout_length: int
    epochs: int
    minibatches: int
    gae_lambda: float = 0.95
    clip_ratio: float = 0.2
    entropy_weight: float = 0.002
    value_weight: float = 1.0
    huber_delta: float = 10.0
    value_decay: float = 0.99
    grad_norm: float = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfflineCase(Case):
    """Learning from recorded data: what other cases say of env steps counts gradient steps here.

    Attributes:
      algorithm: `iql`, `awac`, `td3_bc`, `bc` or `cql`.
      rows: recorded steps, of episodes of `episode_length`, standard normal numbers of the environment's shapes.
      episode_length: steps of an episode, each cut by a limit of time.
    """

    algorithm: str
    rows: int = 100_000
    episode_length: int = 1_000


def _ppo_cartpole(num_envs: int, warmup: int, window: int, targets: Mapping[str, float]) -> PPOCase:
    """CartPole with `num_envs` environments; `warmup` and `window` count iterations."""
    iteration = num_envs * 128
    return PPOCase(
        name=f"ppo_cartpole_{num_envs}", env_id="CartPole-v1", num_envs=num_envs, hidden=(64, 64),
        batch_size=iteration // 4, learning_rate=2.5e-4, iteration_steps=iteration, rollout_length=128,
        warmup_steps=warmup * iteration, window_steps=window * iteration, targets=targets,
    )  # fmt: skip


def _sac(name: str, env_id: str, targets: Mapping[str, float], threads: int = 1, width: int = 256) -> SACCase:
    return SACCase(
        name=name, env_id=env_id, threads=threads, num_envs=1, hidden=(width, width), batch_size=256,
        learning_rate=3e-4, iteration_steps=1, warmup_steps=500, window_steps=400, buffer_size=100_000,
        learning_starts=300, targets=targets,
    )  # fmt: skip


_XUANCE = {"xuance": 5.0}
"""MindSpore on both sides."""

_A2C = A2CCase(
    name="a2c_cartpole", env_id="CartPole-v1", num_envs=8, hidden=(64, 64), batch_size=40, learning_rate=7e-4,
    iteration_steps=40, rollout_length=5, warmup_steps=8_000, window_steps=40_000, targets={"sb3": 3.0},
)  # fmt: skip

_DQN = DQNCase(
    name="dqn_cartpole", env_id="CartPole-v1", num_envs=1, hidden=(128, 128), batch_size=128,
    learning_rate=1e-3, iteration_steps=4, warmup_steps=2000, window_steps=6000, buffer_size=50_000,
    learning_starts=1000, targets={"sb3": 2.5, "sbx": 2.5, **_XUANCE},
)  # fmt: skip

_QRDQN = QRDQNCase(
    name="qrdqn_cartpole", env_id="CartPole-v1", num_envs=1, hidden=(128, 128), batch_size=128,
    learning_rate=1e-3, iteration_steps=4, warmup_steps=2000, window_steps=4000, buffer_size=50_000,
    learning_starts=1000, quantiles=50, targets={"sb3_contrib": 2.0},
)  # fmt: skip

_TD3 = TD3Case(
    name="td3_pendulum", env_id="Pendulum-v1", num_envs=1, hidden=(256, 256), batch_size=256,
    learning_rate=1e-3, iteration_steps=1, warmup_steps=500, window_steps=400, buffer_size=100_000,
    learning_starts=300, targets={"sb3": 2.0, "sbx": 1.5},
)  # fmt: skip

_RECURRENT_PPO = RecurrentPPOCase(
    name="recurrent_ppo_cartpole", env_id="CartPole-v1", num_envs=8, hidden=(64,), memory_size=64, batch_size=256,
    learning_rate=2.5e-4, iteration_steps=1024, rollout_length=128, warmup_steps=4 * 1024, window_steps=8 * 1024,
    targets={"sb3_contrib": 3.0},
)  # fmt: skip

_QMIX = QMIXCase(
    name="qmix_simple_spread", env_id="mpe2/simple_spread_v3", num_envs=8, hidden=(64,), batch_size=32,
    learning_rate=5e-4, gamma=0.95, iteration_steps=200, episode_length=25, updates=8, warmup_steps=1_600,
    window_steps=2_000, buffer_size=50_000, learning_starts=1_000, targets={"pymarl_style": 2.0},
)  # fmt: skip

_MAPPO = MAPPOCase(
    name="mappo_simple_spread", env_id="mpe2/simple_spread_v3", num_envs=16, hidden=(128, 128), batch_size=600,
    learning_rate=7e-4, gamma=0.95, iteration_steps=1_600, episode_length=25, rollout_length=100, epochs=10,
    minibatches=8, warmup_steps=3_200, window_steps=6_400, targets={"mappo_style": 2.0},
)  # fmt: skip

_QMIX_SMAX = dataclasses.replace(
    _QMIX, name="qmix_smax_3m", env_id="smax/3m", num_envs=16, gamma=0.99, iteration_steps=1_600, episode_length=100,
    warmup_steps=8_000, window_steps=32_000, learning_starts=3_200, targets={"jaxmarl_style": 0.75},
)  # fmt: skip

_MAPPO_SMAX = dataclasses.replace(
    _MAPPO, name="mappo_smax_3m", env_id="smax/3m", num_envs=128, batch_size=12_288, learning_rate=2e-3, gamma=0.99,
    iteration_steps=16_384, episode_length=100, rollout_length=128, epochs=4, minibatches=4, entropy_weight=0.0,
    value_weight=0.5, grad_norm=0.25, warmup_steps=2 * 16_384, window_steps=8 * 16_384,
    targets={"jaxmarl_style": 0.75},
)  # fmt: skip
"""JaxMARL's settings of SMAX; QMIX with PyMARL's sizes of networks."""


_NATURE: dict[str, Any] = {
    "env_id": "benchmarks.frames:Frames", "image": (4, 84, 84), "convolutions": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
    "image_features": 512, "hidden": (),
}  # fmt: skip
"""Images of Atari's size and the network of Mnih et al. (2015, https://doi.org/10.1038/nature14236)."""
_SMALL: dict[str, Any] = {
    "env_id": "benchmarks.frames:Frames", "image": (4, 10, 10), "convolutions": ((16, 3, 1),), "image_features": 128,
    "hidden": (),
}  # fmt: skip
"""Images of MinAtar's size and the network of Young and Tian (2019, https://arxiv.org/abs/1903.03176)."""
_CELLS: dict[str, Any] = {
    "env_id": "benchmarks.frames:Frames", "image": (21, 7, 7), "convolutions": ((16, 2, 1), (32, 2, 1)),
    "image_features": 64, "hidden": (),
}  # fmt: skip
"""Images of MiniGrid's size, with the wrapper `minigrid`, and the network of the preset `minigrid_doorkey_ppo`."""


def _ppo_images(name: str, warmup: int, window: int, targets: Mapping[str, float], **image: Any) -> PPOCase:
    """PPO on images; `warmup` and `window` count iterations."""
    return PPOCase(
        name=name, num_envs=8, batch_size=256, learning_rate=2.5e-4, iteration_steps=1024, rollout_length=128,
        warmup_steps=warmup * 1024, window_steps=window * 1024, targets=targets, **image,
    )  # fmt: skip


def _dqn_images(name: str, window: int, target: float, **image: Any) -> DQNCase:
    return DQNCase(
        name=name, num_envs=1, batch_size=32, learning_rate=1e-4, iteration_steps=4, warmup_steps=2400,
        window_steps=window, buffer_size=10_000, learning_starts=1000, targets={"sb3": target}, **image,
    )  # fmt: skip


def _offline(algorithm: str, target: float, learning_rate: float = 3e-4, calls: int = 20) -> OfflineCase:
    """Arrays in the form of HalfCheetah, 256-256, batch 256; the clock is on for some `calls` of 32 gradient steps."""
    return OfflineCase(
        name=f"{algorithm}_recorded", env_id="HalfCheetah-v5", num_envs=1, hidden=(256, 256), batch_size=256,
        learning_rate=learning_rate, iteration_steps=32, warmup_steps=64, window_steps=calls * 32,
        targets={"d3rlpy": target}, algorithm=algorithm,
    )  # fmt: skip


_PPO_SCRIPT = {"cleanrl_style": 2.5}

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        _ppo_cartpole(8, warmup=8, window=32, targets={"sb3": 3.8, "sbx": 3.0, **_PPO_SCRIPT, **_XUANCE}),
        _ppo_cartpole(
            64, warmup=4, window=12, targets={"sb3": 4.5, "sbx": 3.0, **_PPO_SCRIPT, "purejaxrl_style": 0.75}
        ),
        dataclasses.replace(
            _ppo_cartpole(64, warmup=4, window=12, targets=_PPO_SCRIPT), name="ppo_cartpole_64_envpool", envpool=True
        ),
        dataclasses.replace(
            _ppo_cartpole(64, warmup=2, window=4, targets={"cleanrl_style": 1.1}),
            name="ppo_halfcheetah_envpool",
            env_id="HalfCheetah-v5",
            envpool=True,
        ),
        _ppo_images(
            "ppo_pong_envpool", 2, 4, {"cleanrl_style": 1.4}, **{**_NATURE, "env_id": "Pong-v5", "envpool": True}
        ),
        _RECURRENT_PPO,
        _A2C,
        _DQN,
        _ppo_images("ppo_pixels", 2, 4, {"sb3": 1.4}, **_NATURE),
        _dqn_images("dqn_pixels", 1200, 1.4, **_NATURE),
        _ppo_images("ppo_minatar", 4, 24, {"sb3": 2.5}, **_SMALL),
        _ppo_images("ppo_minigrid", 4, 24, {"sb3": 2.5}, **_CELLS),
        _dqn_images("dqn_minatar", 4000, 2.0, **_SMALL),
        _QRDQN,
        _sac("sac_pendulum", "Pendulum-v1", {"sb3": 2.4, "sbx": 1.5, **_XUANCE}),
        _sac("sac_halfcheetah", "HalfCheetah-v5", {"sb3": 2.4}),
        _sac("sac_pendulum_two_threads", "Pendulum-v1", {"sb3": 2.2}, threads=2),
        _sac("sac_halfcheetah_two_threads", "HalfCheetah-v5", {"sb3": 2.2}, threads=2),
        _TD3,
        _QMIX,
        _MAPPO,
        _QMIX_SMAX,
        _MAPPO_SMAX,
        _offline("iql", 2.2),
        _offline("awac", 2.2),
        _offline("td3_bc", 2.0),
        _offline("bc", 3.0, learning_rate=1e-3, calls=60),
        _offline("cql", 1.3, calls=3),
    )
}

SCALING_CASES: dict[str, Case] = {
    case.name: case
    for case in (
        _ppo_cartpole(256, warmup=2, window=4, targets={}),
        _ppo_cartpole(1024, warmup=2, window=2, targets={}),
        _sac("sac_pendulum_64", "Pendulum-v1", {}, width=64),
        _sac("sac_pendulum_1024", "Pendulum-v1", {}, width=1024),
    )
}
"""The same work in other sizes, which `benchmarks.scaling` times beside that of `CASES`."""


def find_case(name: str) -> Case:
    """Returns the case of that name.

    Raises:
      KeyError: no case has this name; the message lists them.
    """
    known = CASES | SCALING_CASES
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise KeyError(f"unknown case {name!r}{hint} Known: {', '.join(known)}")
