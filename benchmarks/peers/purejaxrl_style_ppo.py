"""PPO compiled as a whole by JAX, environments included, in the manner of PureJaxRL's `ppo.py`.

``python -m benchmarks.peers.purejaxrl_style_ppo CASE`` prints one line of JSON. Rollout, advantages, epochs and
minibatches are one XLA program that calls nothing outside, with CartPole written in JAX: no algorithm that steps
Gymnasium's environments can do this, and it marks what compilation can reach. The losses are those of
`cleanrl_style_ppo`; dynamics, limits and rewards of CartPole-v1 are Gymnasium's. No logging.

Lu et al., 2022, https://arxiv.org/abs/2210.05639; https://github.com/luchris429/purejaxrl.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from benchmarks.cases import MAPPOCase, PPOCase
from benchmarks.window import RunOptions, keep_to_cores, measure, parse_options

OPTIONS = parse_options() if __name__ == "__main__" else None
if OPTIONS is not None:
    keep_to_cores(OPTIONS.case.threads)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
from jax import Array  # noqa: E402

TIME_LIMIT = 500
ANGLE_LIMIT, POSITION_LIMIT = 12 * 2 * math.pi / 360, 2.4


class Env(NamedTuple):
    """N environments: what is seen of them, ``(N, ...)``, and the rest of their states."""

    obs: Any
    rest: Any


class Transition(NamedTuple):
    """One step of N environments, or T of them with an axis in front."""

    obs: Any
    action: Array
    log_prob: Array
    value: Array
    reward: Array
    done: Array


class Training(NamedTuple):
    """What lives on from one iteration to the next."""

    params: dict
    optimizer: optax.OptState
    env: Env
    key: Array


class CartPole:
    """The environments, and the networks for them; one class for what another task exchanges."""

    def reset(self, key: Array, num_envs: int) -> Env:
        return Env(self.first_state(key, num_envs), jnp.zeros(num_envs, jnp.int32))

    def first_state(self, key: Array, num_envs: int) -> Array:
        return jax.random.uniform(key, (num_envs, 4), minval=-0.05, maxval=0.05)

    def step(self, env: Env, action: Array, key: Array) -> tuple[Env, Array, Array]:
        """One step with a reset where an episode ends; returns the environments, rewards and ends, ``(N,)`` each."""
        _, x_dot, theta, theta_dot = env.obs.T
        force = jnp.where(action == 1, 10.0, -10.0)
        sine, cosine = jnp.sin(theta), jnp.cos(theta)
        push = (force + 0.05 * theta_dot**2 * sine) / 1.1
        angular = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        linear = push - 0.05 * angular * cosine / 1.1
        rates = jnp.stack([x_dot, linear, theta_dot, angular], axis=1)
        state, steps = env.obs + 0.02 * rates, env.rest + 1
        fell = (jnp.abs(state[:, 0]) > POSITION_LIMIT) | (jnp.abs(state[:, 2]) > ANGLE_LIMIT)
        done = fell | (steps >= TIME_LIMIT)
        state = jnp.where(done[:, None], self.first_state(key, len(action)), state)
        return Env(state, jnp.where(done, 0, steps)), jnp.ones(len(action)), done.astype(jnp.float32)

    def sizes(self, obs: Array) -> tuple[int, int, int]:
        """Inputs and outputs of the actor, and inputs of the critic."""
        return 4, 2, 4

    def policy_and_value(self, params: dict, obs: Array) -> tuple[Array, Array]:
        """Log probabilities of the actions ``(B, A)`` and values ``(B,)``."""
        return jax.nn.log_softmax(mlp(params["actor"], obs)), mlp(params["critic"], obs)[..., 0]


def init_mlp(key: Array, sizes: list[int], head_gain: float) -> list[tuple[Array, Array]]:
    """Weights and biases of a tanh network; `sizes` runs from the input to the output width."""
    gains = [math.sqrt(2)] * (len(sizes) - 2) + [head_gain]
    layers = zip(jax.random.split(key, len(gains)), sizes[:-1], sizes[1:], gains, strict=True)
    return [(jax.nn.initializers.orthogonal(gain)(k, (i, o)), jnp.zeros(o)) for k, i, o, gain in layers]


def mlp(layers: list[tuple[Array, Array]], x: Array) -> Array:
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = layers[-1]
    return x @ weight + bias


def chosen(log_probs: Array, action: Array) -> Array:
    return jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]


class Trainer:
    """Trains in one compiled call for any number of iterations.

    Args:
      case: sizes and hyper-parameters.
      world: environments and networks.
      seed: seed of networks, environments and shuffles.
      total_steps: env steps until the learning rate reaches zero.
    """

    def __init__(self, case: PPOCase | MAPPOCase, world: Any, seed: int, total_steps: int) -> None:
        self.case, self.world = case, world
        keys = jax.random.split(jax.random.PRNGKey(seed), 4)
        env = world.reset(keys[2], case.num_envs)
        seen, actions, state = world.sizes(env.obs)
        params = {
            "actor": init_mlp(keys[0], [seen, *case.hidden, actions], head_gain=0.01),
            "critic": init_mlp(keys[1], [state, *case.hidden, 1], head_gain=1.0),
        }
        gradient_steps = total_steps // case.iteration_steps * case.epochs * case.minibatches
        rate = optax.linear_schedule(case.learning_rate, 0.0, gradient_steps)
        self.optimizer = optax.chain(optax.clip_by_global_norm(case.grad_norm), optax.adam(rate, eps=1e-5))
        self.training = Training(params, self.optimizer.init(params), env, keys[3])
        self.run = jax.jit(
            lambda training, count: jax.lax.fori_loop(0, count, lambda _, x: self.iteration(x), training)
        )

    def train_for(self, env_steps: int) -> int:
        count = -(-env_steps // self.case.iteration_steps)
        self.training = jax.block_until_ready(self.run(self.training, count))
        return count * self.case.iteration_steps

    def iteration(self, training: Training) -> Training:
        """One rollout and the gradient steps on it."""
        key, collect_key, learn_key = jax.random.split(training.key, 3)
        env, rollout = self.collect(training.params, training.env, collect_key)
        advantage = self.advantages(rollout, self.world.policy_and_value(training.params, env.obs)[1])
        rows = (rollout, advantage, advantage + rollout.value)
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)

        def epoch(carry: tuple, key: Array) -> tuple[tuple, None]:
            order = jax.random.permutation(key, len(rows[1])).reshape(self.case.minibatches, -1)
            return jax.lax.scan(self.gradient_step, carry, jax.tree.map(lambda x: x[order], rows))

        carry = (training.params, training.optimizer)
        (params, optimizer), _ = jax.lax.scan(epoch, carry, jax.random.split(learn_key, self.case.epochs))
        return Training(params, optimizer, env, key)

    def collect(self, params: dict, env: Env, key: Array) -> tuple[Env, Transition]:
        """Returns the environments and a rollout, each field ``(T, N, ...)``."""

        def step(env: Env, key: Array) -> tuple[Env, Transition]:
            action_key, reset_key = jax.random.split(key)
            log_probs, value = self.world.policy_and_value(params, env.obs)
            action = jax.random.categorical(action_key, log_probs)
            following, reward, done = self.world.step(env, action, reset_key)
            return following, Transition(env.obs, action, chosen(log_probs, action), value, reward, done)

        return jax.lax.scan(step, env, jax.random.split(key, self.case.rollout_length))

    def advantages(self, rollout: Transition, last_value: Array) -> Array:
        """Generalized advantage estimation, ``(T, N)``."""
        gamma, decay = self.case.gamma, self.case.gamma * self.case.gae_lambda

        def backward(carry: tuple[Array, Array], row: Transition) -> tuple[tuple[Array, Array], Array]:
            advantage, following = carry
            alive = 1.0 - row.done
            delta = row.reward + gamma * following * alive - row.value
            advantage = delta + decay * alive * advantage
            return (advantage, row.value), advantage

        start = (jnp.zeros_like(last_value), last_value)
        return jax.lax.scan(backward, start, rollout, reverse=True)[1]

    def loss(self, params: dict, rows: tuple[Transition, Array, Array]) -> Array:
        """Clipped policy loss - entropy bonus + clipped value loss of one minibatch."""
        case, (old, advantage, returns) = self.case, rows
        log_probs, value = self.world.policy_and_value(params, old.obs)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = jnp.exp(chosen(log_probs, old.action) - old.log_prob)
        clipped_ratio = jnp.clip(ratio, 1 - case.clip_ratio, 1 + case.clip_ratio)
        policy_loss = -jnp.minimum(advantage * ratio, advantage * clipped_ratio).mean()
        clipped_value = old.value + jnp.clip(value - old.value, -case.clip_ratio, case.clip_ratio)
        value_loss = 0.5 * jnp.maximum((value - returns) ** 2, (clipped_value - returns) ** 2).mean()
        entropy = -(jnp.exp(log_probs) * log_probs).sum(axis=-1).mean()
        return policy_loss - case.entropy_weight * entropy + case.value_weight * value_loss

    def gradient_step(self, carry: tuple, rows: tuple) -> tuple[tuple, None]:
        params, optimizer = carry
        grads = jax.grad(self.loss)(params, rows)
        updates, optimizer = self.optimizer.update(grads, optimizer)
        return (optax.apply_updates(params, updates), optimizer), None


def build(options: RunOptions) -> Trainer:
    """Returns a trainer for the case.

    Raises:
      SystemExit: the case is not PPO on CartPole.
    """
    case = options.case
    if not isinstance(case, PPOCase) or case.env_id != "CartPole-v1":
        raise SystemExit(f"purejaxrl_style_ppo runs PPO on CartPole-v1 only, got {case.name}")
    return Trainer(case, CartPole(), options.seed, case.warmup_steps + case.window(options.scale))


if __name__ == "__main__":
    assert OPTIONS is not None
    print(measure(OPTIONS, "purejaxrl_style", build(OPTIONS).train_for).to_json())
