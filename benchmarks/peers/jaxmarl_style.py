"""MAPPO and QMIX on SMAX, compiled as a whole by JAX with the battles, in the manner of JaxMARL's baselines.

``python -m benchmarks.peers.jaxmarl_style CASE`` prints one line of JSON. The battles, which begin again where they
end, are JaxMARL's own; its baselines, `mappo_rnn_smax.py` and `qmix_rnn.py`, are scripts outside the package. MAPPO is
PureJaxRL's PPO as there, with a critic that sees the state and the agent's number, but without a GRU and with one
optimizer. QMIX replays whole rollouts, in which the GRU begins anew with each battle, as there, but with Adam in place
of RAdam. No logging and no tests.

Rutherford et al., 2024, https://arxiv.org/abs/2311.10090; https://github.com/FLAIROx/JaxMARL.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks.cases import MAPPOCase, QMIXCase
from benchmarks.window import RunOptions, keep_to_cores, measure, parse_options

OPTIONS = parse_options() if __name__ == "__main__" else None
if OPTIONS is not None:
    keep_to_cores(OPTIONS.case.threads)

import flax.linen as nn  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
from jax import Array  # noqa: E402
from jaxmarl.environments.smax import HeuristicEnemySMAX, map_name_to_scenario  # noqa: E402

from benchmarks.peers.purejaxrl_style_ppo import Env, Trainer, chosen, mlp  # noqa: E402

ILLEGAL = -1e10


class Seen(NamedTuple):
    """What is seen of N battles with M agents: observations with the agents' numbers ``(N, M, F)``, legal actions
    ``(N, M, A)``, the state ``(N, S)``, and which agents died in the step before ``(N, M)``."""

    obs: Array
    legal: Array
    state: Array
    died: Array


class Battles:
    """N battles on a map, for MAPPO with one row for each agent."""

    def __init__(self, case: MAPPOCase | QMIXCase) -> None:
        self.env = HeuristicEnemySMAX(scenario=map_name_to_scenario(case.env_id.partition("/")[2]))
        self.agents, self.actions, self.num_envs = self.env.num_agents, self.env.num_ally_actions, case.num_envs

    def begin(self, key: Array) -> tuple[Any, Seen]:
        obs, world = jax.vmap(self.env.reset)(jax.random.split(key, self.num_envs))
        return world, self.seen(world, obs, dict.fromkeys(self.env.agents, jnp.zeros(self.num_envs, bool)))

    def act(self, world: Any, action: Array, key: Array) -> tuple[Any, Seen, Array, Array]:
        """Takes the actions ``(N, M)``; returns the worlds, what is seen, rewards and ends, ``(N,)`` each."""
        names, keys = self.env.agents, jax.random.split(key, self.num_envs)
        obs, world, reward, done, _ = jax.vmap(self.env.step)(keys, world, dict(zip(names, action.T)))
        return world, self.seen(world, obs, done), reward[names[0]], done["__all__"].astype(jnp.float32)

    def seen(self, world: Any, obs: dict, done: dict) -> Seen:
        def each(x: dict) -> Array:
            return jnp.stack([x[name] for name in self.env.agents], 1)

        legal = each(jax.vmap(self.env.get_avail_actions)(world))
        return Seen(jnp.concatenate([each(obs), self.numbers()], -1), legal, obs["world_state"], each(done))

    def numbers(self) -> Array:
        return jnp.broadcast_to(jnp.eye(self.agents), (self.num_envs, self.agents, self.agents))

    # For `Trainer`.

    def reset(self, key: Array, _: int) -> Env:
        return self.rows(*self.begin(key))

    def step(self, env: Env, action: Array, key: Array) -> tuple[Env, Array, Array]:
        world, seen, *results = self.act(env.rest, action.reshape(self.num_envs, self.agents), key)
        return self.rows(world, seen), *(jnp.repeat(x, self.agents) for x in results)

    def rows(self, world: Any, seen: Seen) -> Env:
        central = jnp.concatenate([jnp.repeat(seen.state[:, None], self.agents, 1), self.numbers()], -1)
        return Env([x.reshape(-1, x.shape[-1]) for x in (seen.obs, seen.legal, central)], world)

    def sizes(self, obs: list[Array]) -> tuple[int, int, int]:
        return obs[0].shape[-1], self.actions, obs[2].shape[-1]

    def policy_and_value(self, params: dict, obs: list[Array]) -> tuple[Array, Array]:
        logits = mlp(params["actor"], obs[0]) + (1 - obs[1]) * ILLEGAL
        return jax.nn.log_softmax(logits), mlp(params["critic"], obs[2])[..., 0]


class Agent(nn.Module):
    """Action values ``(T, ..., A)``; the memory begins anew where agents died in the step before."""

    case: QMIXCase
    actions: int

    @nn.compact
    def __call__(self, memory: Array, seen: Seen) -> tuple[Array, Array]:
        def step(cell: nn.Module, h: Array, x: tuple[Array, Array]) -> tuple[Array, Array]:
            return cell(jnp.where(x[1][..., None], 0.0, h), x[0])

        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False})
        x = nn.relu(nn.Dense(self.case.hidden[0])(seen.obs))
        memory, x = scan(nn.GRUCell(self.case.memory_size), memory, (x, seen.died))
        return memory, nn.Dense(self.actions)(x)


class Mixer(nn.Module):
    """The value of a team ``(...)`` by those of its agents ``(..., M)``, with weights that come from the state."""

    case: QMIXCase

    @nn.compact
    def __call__(self, q: Array, state: Array) -> Array:
        def hyper(width: int, size: int) -> Array:
            return nn.Dense(size)(nn.relu(nn.Dense(width)(state)))

        size, hidden = self.case.mixer_size, self.case.hypernet_size
        weight = jnp.abs(hyper(hidden, q.shape[-1] * size)).reshape(*q.shape, size)
        mixed = nn.elu((q[..., None, :] @ weight)[..., 0, :] + nn.Dense(size)(state))
        return (mixed * jnp.abs(hyper(hidden, size))).sum(-1) + hyper(size, 1)[..., 0]


class QMIX:
    """Trains in one compiled call for any number of iterations; see `Trainer`."""

    def __init__(self, case: QMIXCase, seed: int) -> None:
        self.case, self.battles = case, Battles(case)
        self.agent, self.mixer = Agent(case, self.battles.actions), Mixer(case)
        self.optimizer = optax.chain(optax.clip_by_global_norm(case.grad_norm), optax.adam(case.learning_rate))
        key = jax.random.PRNGKey(seed)
        seen = jax.tree.map(lambda x: x[None], self.battles.begin(key)[1])
        memory = self.memory(case.num_envs)
        q = self.agent.init_with_output(key, memory, seen)
        params = {"agent": q[1], "mixer": self.mixer.init(key, q[0][1].max(-1), seen.state)}
        rollout = jax.eval_shape(self.collect, params, key)
        places = case.buffer_size // case.iteration_steps * case.num_envs
        replay = jax.tree.map(lambda x: jnp.zeros((x.shape[0], places, *x.shape[2:]), x.dtype), rollout)
        self.training = (params, params, self.optimizer.init(params), replay, 0, 0, key)
        self.run = jax.jit(lambda x, count: jax.lax.fori_loop(0, count, lambda _, x: self.iteration(*x), x))

    def train_for(self, env_steps: int) -> int:
        """See `benchmarks.window.TrainFor`."""
        count = -(-env_steps // self.case.iteration_steps)
        self.training = jax.block_until_ready(self.run(self.training, count))
        return count * self.case.iteration_steps

    def memory(self, count: int) -> Array:
        return jnp.zeros((count, self.battles.agents, self.case.memory_size))

    def iteration(self, params, target, optimizer, replay, count, updates, key) -> tuple:
        """A rollout and the gradient steps after it."""
        case, (key, collect_key, learn_key) = self.case, jax.random.split(key, 3)
        rollout, (places,) = self.collect(params, collect_key), replay[1].shape[1:2]
        replay = jax.tree.map(
            lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, count % places, 1), replay, rollout
        )
        count += case.num_envs

        def learn(carry: tuple, key: Array) -> tuple[tuple, None]:
            params, target, optimizer, updates = carry
            drawn = jax.random.randint(key, (case.batch_size,), 0, jnp.minimum(count, places))
            grads = jax.grad(self.loss)(params, target, *jax.tree.map(lambda x: x[:, drawn], replay))
            change, optimizer = self.optimizer.update(grads, optimizer)
            params, updates = optax.apply_updates(params, change), updates + 1
            due = updates % case.target_update_freq == 0
            return (params, jax.tree.map(lambda x, y: jnp.where(due, x, y), params, target), optimizer, updates), None

        params, target, optimizer, updates = jax.lax.cond(
            count * case.episode_length >= case.learning_starts,
            lambda x: jax.lax.scan(learn, x, jax.random.split(learn_key, case.updates))[0],
            lambda x: x,
            (params, target, optimizer, updates),
        )
        return params, target, optimizer, replay, count, updates, key

    def collect(self, params: Any, key: Array) -> tuple[Seen, Array, Array, Array]:
        """A rollout that begins with new battles: what is seen, actions, rewards and ends, ``(T, N, ...)`` each."""

        def step(carry: tuple, key: Array) -> tuple[tuple, tuple]:
            world, seen, memory = carry
            draw_key, eps_key, step_key = jax.random.split(key, 3)
            memory, q = self.agent.apply(params["agent"], memory, jax.tree.map(lambda x: x[None], seen))
            limits = (1 - seen.legal) * ILLEGAL
            drawn, best = jax.random.categorical(draw_key, limits), (q[0] + limits).argmax(-1)
            action = jnp.where(jax.random.uniform(eps_key, best.shape) < self.case.eps, drawn, best)
            world, following, reward, over = self.battles.act(world, action, step_key)
            return (world, following, memory), (seen, action, reward, over)

        start = (*self.battles.begin(key), self.memory(self.case.num_envs))
        return jax.lax.scan(step, start, jax.random.split(key, self.case.episode_length))[1]

    def loss(self, params, target, seen: Seen, action: Array, reward: Array, over: Array) -> Array:
        """The squared error of the team's values, by a target of double Q-learning."""
        memory = self.memory(self.case.batch_size)
        q, target_q = (self.agent.apply(each["agent"], memory, seen)[1] for each in (params, target))
        best = (q + (1 - seen.legal) * ILLEGAL).argmax(-1)
        following = self.mixer.apply(target["mixer"], chosen(target_q, best), seen.state)
        backup = reward[:-1] + self.case.gamma * (1.0 - over[:-1]) * following[1:]
        value = self.mixer.apply(params["mixer"], chosen(q, action), seen.state)
        return ((value[:-1] - jax.lax.stop_gradient(backup)) ** 2).mean()


def build(options: RunOptions) -> Trainer | QMIX:
    """Returns a trainer for the case.

    Raises:
      SystemExit: the case is not MAPPO or QMIX on SMAX.
    """
    case = options.case
    if not isinstance(case, MAPPOCase | QMIXCase) or not case.env_id.startswith("smax/"):
        raise SystemExit(f"jaxmarl_style runs MAPPO and QMIX on SMAX only, got {case.name}")
    if isinstance(case, QMIXCase):
        return QMIX(case, options.seed)
    return Trainer(case, Battles(case), options.seed, case.warmup_steps + case.window(options.scale))


if __name__ == "__main__":
    assert OPTIONS is not None
    print(measure(OPTIONS, "jaxmarl_style", build(OPTIONS).train_for).to_json())
