"""Dreamer: one update on replayed sequences against NumPy in float64, and acting as learning sees it."""

import copy

import kit
import numpy as np
import pytest
from action_values import linear, np_log_softmax
from fakes import IMAGE, VECTOR, dict_of, discrete, draw_masks, mask_of, multi_discrete, space_of
from float64_networks import gradients, names_of
from team_values import GATES
from test_recurrent import gru_step, sigmoid

from minding.configs.chains.sequence_replay import sequence_buffer
from minding.engine.process.runtime import ms, nn, ops, to_device
from minding.engine.seeding import generator_state, restore_generator
from minding.policies.dreamer import start_states
from minding.policies.networks.world_model import MixedChoicesHead

pytestmark = pytest.mark.eager

SMALL = {
    **{"policy.model.deter": 6, "policy.model.latents": 3, "policy.model.classes": 4, "policy.model.bins": 9},
    **{"policy.learn.length": 4, "policy.learn.horizon": 3, "policy.learn.starts": 15, "policy.learn.batch_size": 5},
}
COUNTS = (3, 2)
ENDS = np.cumsum(COUNTS)
CHOICE = dict_of(action_mask=mask_of(*COUNTS), seen=VECTOR, symbol=discrete(3))
CONTRACT = {
    "dreamer": (VECTOR, space_of(2), SMALL),
    "dreamer, full posterior, decoder of convolutions": (
        dict_of(image=IMAGE, seen=VECTOR),
        space_of(2),
        {
            **SMALL,
            "policy.model.posterior": "full",
            "policy.learn.actor_gradient": "dynamics",
            "policy.model.decoder": "convolutions",
            "policy.learn.length": 2,
            "policy.learn.horizon": 2,
        },
    ),
    "dreamer, masked choices": (CHOICE, multi_discrete(*COUNTS), SMALL),
}
LEARNS = {
    **{"run.max_env_step": 800, "policy.collect.n_sample": 8, "policy.learn.batch_size": 16},
    **{"policy.learn.warmup": 64, "policy.other.buffer_size": 2000, "policy.learn.learning_rate": 0.005},
    **{"policy.model.deter": 8, "policy.model.latents": 2, "policy.model.classes": 4},
    **{"policy.learn.length": 2, "policy.learn.horizon": 2, "policy.learn.starts": 32, "policy.learn.train_ratio": 16},
    **{"policy.learn.actor_learning_rate": 0.005, "policy.learn.critic_learning_rate": 0.005},
}
RESUMES = {
    "dreamer": (
        "CartPole-v1",
        (
            *(f"{key}={value}" for key, value in SMALL.items() if "batch_size" not in key),
            *("policy.learn.batch_size=4", "policy.learn.train_ratio=2.5", "policy.collect.random_steps=40"),
        ),
    )
}
ALTERNATIVES = ("policy.learn.context=zero", "policy.learn.actor_gradient=dynamics", "policy.model.posterior=full")
ENVS, TIME, BATCH = 3, 26, 5
KINDS = {
    "box": {"action": space_of(2), "learn": {"free_nats": 1.0, "entropy_weight": 0.01}},
    "choice": {
        **{"observation": CHOICE, "action": multi_discrete(*COUNTS)},
        **{"policy.model.posterior": "full", "policy.model.norm": "none"},
        "learn": {"context": "zero", "actor_gradient": "dynamics", "free_nats": 0.2},
    },
}


def with_a_buffer(bench):
    """Nothing starts at 0; its buffer has episodes of any length that end either way, and its first rows are gone."""
    rng = np.random.default_rng(3)
    for name, p in bench.policy.params.items():
        if not name.startswith("optim") and name != "returns":
            p.asnumpy()[...] += rng.normal(0.0, 0.3, p.shape).astype(np.float32)
    if hasattr(bench, "buffer"):
        # An update is compiled for one buffer.
        bench.buffer.load_state_dict(copy.deepcopy(bench.history))
        return
    bench.buffer = sequence_buffer(bench.policy.config, bench.policy)
    rows = history(bench.buffer.fields)
    for part in np.array_split(np.arange(TIME * ENVS), 3):
        bench.buffer.push({name: values[part] for name, values in rows.items()})
    bench.history = copy.deepcopy(bench.buffer.state_dict())


ALWAYS = {**SMALL, "learn": {"grad_norm": 0.0}, "policy.other.buffer_size": 60}
built, bench = kit.benches("dreamer", count=1, kinds=KINDS, prepare=with_a_buffer, **ALWAYS)


def history(fields, counts=COUNTS, share=0.35):
    """Rows ordered by time, then environment, a share of which end their episode; counts: of the choices."""
    rng = np.random.default_rng(0)
    ended = rng.random((TIME, ENVS)) < share
    rows = {
        "reward": 3.0 * rng.standard_normal((TIME, ENVS)).astype(np.float32),
        "terminated": ended & (rng.random((TIME, ENVS)) < 0.5),
        "sequence": np.tile(np.arange(ENVS), (TIME, 1)),
        "begun": np.concatenate([np.ones((1, ENVS), bool), ended[:-1]]),
        "ended": ended,
    }
    for name in [name for name in fields if name.startswith("obs")]:
        if fields[name].dtype == "bool":
            masks = draw_masks(counts, 2 * TIME * ENVS, rng).reshape(2, TIME, ENVS, -1)
            rows[name], rows[f"next_{name}"] = masks
            continue
        shape, whole = (TIME + 1, ENVS, *fields[name].shape), fields[name].dtype == "int32"
        obs, final = rng.integers(0, 3, (2, *shape)) if whole else 2.0 * rng.standard_normal((2, *shape))
        where = ended.reshape(TIME, ENVS, *(1 for _ in fields[name].shape))
        rows[name] = obs[:-1].astype(np.float32)
        rows[f"next_{name}"] = np.where(where, final[1:], obs[1:]).astype(np.float32)
    if fields["action"].dtype == "int32":
        rows["action"] = rng.integers(0, counts, (TIME, ENVS, *fields["action"].shape))
    else:
        rows["action"] = rng.uniform(-1.0, 1.0, (TIME, ENVS, 2)).astype(np.float32)
    if "memory" in fields:
        rows["memory"] = rng.uniform(-1.0, 1.0, (TIME, ENVS, *fields["memory"].shape)).astype(np.float32)
    return {name: values.reshape(TIME * ENVS, *values.shape[2:]) for name, values in rows.items()}


# Formulas in float64


def hot(action):
    return np.concatenate([np.eye(n)[action[..., k]] for k, n in enumerate(COUNTS)], axis=-1)


def mlp(p, part, x):
    """Hidden layers with ReLU, normalized if they have norms."""
    k = 0
    while f"{part}.layers.{k}.weight" in p:
        x = linear(p, f"{part}.layers.{k}", x)
        if f"{part}.norms.{k}.weight" in p:
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
            x = x * p[f"{part}.norms.{k}.weight"] + p[f"{part}.norms.{k}.bias"]
        x, k = np.maximum(x, 0.0), k + 1
    return x


def softmax(x):
    return np.exp(np_log_softmax(x))


def symlog(x):
    return np.sign(x) * np.log1p(np.abs(x))


def symexp(x):
    return np.sign(x) * np.expm1(np.abs(x))


def two_hot(x, bins):
    made = np.zeros((len(x), len(bins)))
    for b, number in enumerate(np.clip(symlog(x), bins[0], bins[-1])):
        k = min(int((number - bins[0]) / (bins[1] - bins[0])), len(bins) - 2)
        made[b, k + 1] = (number - bins[k]) / (bins[1] - bins[0])
        made[b, k] = 1.0 - made[b, k + 1]
    return made


class Drawn:
    """Draws by uniform numbers, kept as constants beside the probabilities: so that differences follow gradients that
    go straight through."""

    def __init__(self):
        self.offsets = {}

    def __call__(self, key, p, number):
        if key not in self.offsets:
            below = np.cumsum(p, axis=-1) - p
            place = (below <= number[..., None]).sum(axis=-1) - 1
            self.offsets[key] = np.eye(p.shape[-1])[place] - p
        return p + self.offsets[key]


class Oracle:
    """What Dreamer makes of the sequences (T, B) of one gradient step, from its formulas."""

    def __init__(self, policy, batch):
        kept = generator_state(policy.learn_rng)
        self.inputs = {name: np.asarray(x)[0] for name, x in policy.inputs(batch, 0.0).steps.items()}
        restore_generator(policy.learn_rng, kept)
        self.policy, self.model, self.learn = policy, policy.cfg.model, policy.cfg.learn
        rows = {
            name: batch.layout.read(batch.tables.host, name, batch.index[0]).astype(np.float64)
            for name in batch.layout.fields
        }
        self.rows, self.filled, self.box = rows, batch.filled[0], policy.spec["action"]["kind"] == "box"
        self.names = [name for name in rows if name.startswith("obs")]
        self.acts = 2 if self.box else sum(COUNTS)
        self.seen = {name: np.concatenate([rows[name][:1], rows[f"next_{name}"]]) for name in self.names}
        self.there = np.concatenate([np.ones((1, BATCH), bool), self.filled])
        self.going = np.concatenate([np.ones((1, BATCH)), 1.0 - rows["terminated"]])
        self.bins = np.linspace(-self.model.bin_limit, self.model.bin_limit, self.model.bins)
        self.drawn, self.still, self.p = Drawn(), {}, kit.params(policy)

    def mean(self, x, where):
        return x[where].sum() / where.sum()

    # World model

    def mixed(self, logits, classes):
        p = softmax(logits.reshape(*logits.shape[:-1], -1, classes))
        return (1 - self.model.unimix) * p + self.model.unimix / classes

    def features(self, p, t):
        if len(self.names) == 1:
            return mlp(p, "net.seen.torso", symlog(self.seen["obs"][t]))
        parts = [symlog(self.seen["obs.seen"][t]), np.eye(3)[self.seen["obs.symbol"][t].astype(int)]]
        made = [np.maximum(linear(p, f"net.seen.encoder.projections.{k}", x), 0.0) for k, x in enumerate(parts)]
        return mlp(p, "net.seen.torso", np.concatenate(made, axis=-1))

    def gru(self, p, x, h):
        return gru_step([p[f"net.memory.{name}"] for name in GATES], x, h)

    def step(self, p, z, a, h):
        return self.gru(p, mlp(p, "net.mix", np.concatenate([z, a], axis=-1)), h)

    def posterior(self, p, t, h):
        seen = self.features(p, t)
        x = np.concatenate([seen, h], axis=-1) if self.model.posterior == "full" else seen
        return self.mixed(linear(p, "net.posterior_logits", mlp(p, "net.posterior_torso", x)), self.model.classes)

    def prior(self, p, h):
        return self.mixed(linear(p, "model.prior_logits", mlp(p, "model.prior_torso", h)), self.model.classes)

    def action_rows(self, t):
        return self.rows["action"][t] if self.box else hot(self.rows["action"][t].astype(int))

    def states(self, p):
        """(h, z, posterior) of each step."""
        deter, size = self.model.deter, self.model.latents * self.model.classes
        first = self.rows["memory"][0] if "memory" in self.rows else np.zeros((BATCH, deter + size + self.acts))
        h, z, a = first[:, :deter], first[:, deter : deter + size], first[:, deter + size :]
        number = self.inputs["latent_number"].reshape(self.learn.length + 1, BATCH, -1)
        for t in range(self.learn.length + 1):
            h = self.step(p, z, a, h)
            posterior = self.posterior(p, t, h)
            z = self.drawn(("latent", t), posterior, number[t]).reshape(BATCH, -1)
            yield h, z, posterior
            if t < self.learn.length:
                a = self.action_rows(t)

    def observation_loss(self, p, t, state):
        made = linear(p, "model.observation.linear", mlp(p, "model.observation.torso", state))
        if len(self.names) == 1:
            return ((made - symlog(self.seen["obs"][t])) ** 2).sum(axis=-1)
        numbers, logits = made[:, :4], made[:, 4:]
        chosen = np_log_softmax(logits)[np.arange(BATCH), self.seen["obs.symbol"][t].astype(int)]
        legal = sigmoid(self.legality(p, state))
        right = np.where(self.seen["obs.action_mask"][t], legal, 1.0 - legal)
        of_mask = -np.log(right).sum(axis=-1)
        return of_mask + ((numbers - symlog(self.seen["obs.seen"][t])) ** 2).sum(axis=-1) - chosen

    def legality(self, p, state):
        return linear(p, "model.observation.own.0", mlp(p, "model.observation.torso", state))

    def logits(self, p, part, state):
        return linear(p, f"{part}.logits", mlp(p, f"{part}.torso", state))

    def number(self, logits):
        return symexp(softmax(logits) @ self.bins)

    def logit_going(self, p, state):
        return linear(p, "model.continuation.logit", mlp(p, "model.continuation.torso", state))[:, 0]

    def model_losses(self, p):
        """The parts of the loss by name, (T + 1, B); those of transitions are 0 at first. Also keeps the states."""
        found = {name: np.zeros((self.learn.length + 1, BATCH)) for name in PARTS}
        made = []
        for t, (h, z, q) in enumerate(self.states(p)):
            state, prior = np.concatenate([h, z], axis=-1), self.prior(p, h)
            made.append(state)
            still_q, still_p = self.still.setdefault(t, (q, prior))
            found["observation_loss"][t] = self.observation_loss(p, t, state)
            found["to_prior"][t] = (still_q * np.log(still_q / prior)).sum(axis=(1, 2))
            found["to_posterior"][t] = (q * np.log(q / still_p)).sum(axis=(1, 2))
            found["prior_entropy"][t] = -(prior * np.log(prior)).sum(axis=(1, 2))
            if t:
                target = two_hot(self.rows["reward"][t - 1], self.bins)
                log_p = np_log_softmax(self.logits(p, "model.reward", state))
                found["reward_loss"][t] = -(target * log_p).sum(axis=-1)
                chance = sigmoid(self.logit_going(p, state))
                going = self.going[t]
                found["continuation_loss"][t] = -(going * np.log(chance) + (1 - going) * np.log(1 - chance))
        return found, np.stack(made)

    def model_loss(self, p):
        found, _ = self.model_losses(p)
        free, learn = self.learn.free_nats, self.learn
        nats = learn.prior_weight * np.maximum(found["to_prior"], free)
        nats += learn.posterior_weight * np.maximum(found["to_posterior"], free)
        of_steps = self.mean(found["observation_loss"] + nats, self.there)
        return of_steps + self.mean((found["reward_loss"] + found["continuation_loss"])[1:], self.filled)

    # Behavior

    def act(self, p, state):
        x = mlp(p, "net.policy", state)
        if not self.box:
            made, scores = [], np.split(self.legality(self.p, state), ENDS[:-1], axis=-1)
            for k, (n, score) in enumerate(zip(COUNTS, scores, strict=True)):
                chance = self.mixed(linear(p, f"net.head.parts.{k}.linear", x), n)[:, 0]
                # If all are thought to be illegal, the one of the highest score is left.
                chance *= (score >= 0) | (score == score.max(axis=-1, keepdims=True))
                made.append(chance / chance.sum(axis=-1, keepdims=True))
            return np.log(np.maximum(np.concatenate(made, axis=-1), 1e-300))
        return np.tanh(linear(p, "net.head.mean", x)), 0.1 + 0.9 * sigmoid(linear(p, "net.head.deviation", x) + 2.0)

    def imagine(self, p, start):
        """States (H + 1, N, F) and what was drawn of the actor, with parameters p of the actor."""
        count, horizon, deter = len(start), self.learn.horizon, self.model.deter
        number = self.inputs["dream_latent"].reshape(horizon, count, -1)
        noise = self.inputs["dream_action"].reshape(horizon, count, -1)
        state, states, drawn = start, [start], []
        for t in range(horizon):
            params_of = self.act(p, state)
            if self.box:
                drawn.append(params_of[0] + params_of[1] * noise[t])
                a = np.clip(drawn[-1], -1.0, 1.0)
            else:
                parts = np.split(np.exp(params_of), ENDS[:-1], axis=-1)
                a = [self.drawn(("action", t, k), part, noise[t, :, k]) for k, part in enumerate(parts)]
                a = np.concatenate(a, axis=-1)
                drawn.append(a)
            h = self.step(self.p, state[:, deter:], a, state[:, :deter])
            z = self.drawn(("dream", t), self.prior(self.p, h), number[t]).reshape(count, -1)
            state = np.concatenate([h, z], axis=-1)
            states.append(state)
        return np.stack(states), np.stack(drawn)

    def judge(self, states):
        """(returns, values, weights), (H, N) each, and the scale."""
        p, learn = self.p, self.learn
        reward = np.stack([self.number(self.logits(p, "model.reward", s)) for s in states[1:]])
        decay = learn.gamma * np.stack([sigmoid(self.logit_going(p, s)) for s in states[1:]])
        value = np.stack([self.number(self.logits(p, "critic", s)) for s in states])
        ahead, returns = value[-1], np.zeros_like(reward)
        for t in reversed(range(learn.horizon)):
            mixed = (1 - learn.td_lambda) * value[t + 1] + learn.td_lambda * ahead
            ahead = returns[t] = reward[t] + decay[t] * mixed
        going = self.going.reshape(-1)[self.inputs["start"]]
        weight = going * np.cumprod(np.concatenate([np.ones((1, len(going))), decay[:-1]]), axis=0)
        low, high = np.percentile(returns, [5, 95])
        return returns, value[:-1], weight, max(1.0, high - low)

    def dream(self):
        _, made = self.model_losses(self.p)
        states, drawn = self.imagine(self.p, made.reshape(-1, made.shape[-1])[self.inputs["start"]])
        return states, drawn, *self.judge(states)

    def actor_loss(self, p, dream):
        states, drawn, returns, value, weight, scale = dream
        if self.learn.actor_gradient == "dynamics":
            states, _ = self.imagine(p, states[0])
            gain = self.judge(states)[0] / scale
            # The entropy is that of the states as they were imagined.
            states = dream[0]
        entropy = np.zeros_like(returns)
        for t in range(self.learn.horizon):
            params_of = self.act(p, states[t])
            if not self.box:
                entropy[t] = -(np.exp(params_of) * params_of).sum(axis=-1)
                continue
            mean, deviation = params_of
            z = (drawn[t] - mean) / deviation
            log_prob = (-0.5 * z**2 - np.log(deviation) - 0.5 * np.log(2 * np.pi)).sum(axis=-1)
            entropy[t] = (np.log(deviation) + 0.5 * np.log(2 * np.pi * np.e)).sum(axis=-1)
            gain = np.zeros_like(returns) if t == 0 else gain
            gain[t] = log_prob * (returns[t] - value[t]) / scale
        return -(weight * (gain + self.learn.entropy_weight * entropy)).mean(), entropy.mean()

    def critic_loss(self, p, dream):
        states, _, returns, _, weight, _ = dream
        total = 0.0
        for t in range(self.learn.horizon):
            target = two_hot(returns[t], self.bins) + softmax(self.logits(self.p, "slow", states[t]))
            log_p = np_log_softmax(self.logits(p, "critic", states[t]))
            total -= (weight[t] * (target * log_p).sum(axis=-1)).mean()
        return total / self.learn.horizon


PARTS = ("observation_loss", "reward_loss", "continuation_loss", "to_prior", "to_posterior", "prior_entropy")


@pytest.mark.parametrize("kind", ["box", pytest.param("choice", marks=pytest.mark.slow)])
def test_the_update_has_the_losses_of_its_formulas(built, kind):
    bench = built(kind)
    policy, batch = bench.policy, bench.buffer.sample(1, BATCH)
    oracle = Oracle(policy, batch)
    # Some sequences are filled up, and some starts have ended.
    assert (~oracle.filled).any()
    assert (oracle.going.reshape(-1)[oracle.inputs["start"]] == 0).any()
    found = policy.learn_mode.forward(batch).metrics
    # World model
    parts, _ = oracle.model_losses(oracle.p)
    free = policy.cfg.learn.free_nats
    assert 0 < (parts["to_prior"][oracle.there] < free).sum() < oracle.there.sum()
    expected = {
        "model_loss": oracle.model_loss(oracle.p),
        "observation_loss": oracle.mean(parts["observation_loss"], oracle.there),
        "reward_loss": oracle.mean(parts["reward_loss"][1:], oracle.filled),
        "continuation_loss": oracle.mean(parts["continuation_loss"][1:], oracle.filled),
        "divergence": oracle.mean(parts["to_prior"], oracle.there),
        "prior_entropy": parts["prior_entropy"].mean(),
    }
    # Behavior
    dream = oracle.dream()
    _, _, returns, value, _, scale = dream
    actor_loss, entropy = oracle.actor_loss(oracle.p, dream)
    expected |= {"actor_loss": actor_loss, "entropy": entropy, "critic_loss": oracle.critic_loss(oracle.p, dream)}
    expected |= {"imagined_return": returns.mean(), "value": value.mean(), "return_scale": scale}
    kit.check_metrics(found, expected, rel=2e-5, abs=2e-5)
    # Gradients
    losses = {
        "model": oracle.model_loss,
        "actor": lambda p: oracle.actor_loss(p, dream)[0],
        "critic": lambda p: oracle.critic_loss(p, dream),
    }
    for group, loss in losses.items():
        kit.check_slopes(loss, oracle.p, names_of(policy, group), gradients(policy, group), rel=1e-3, abs=2e-4)


class Unrolled(nn.Cell):
    def __init__(self, net):
        super().__init__(auto_prefix=False)
        self.net = net

    @ms.jit
    def construct(self, obs, action, first, number):
        h, z, _ = self.net.unroll(self.net.seen((obs,)), action, first, number)
        return ops.Concat(-1)((h, z))


@pytest.mark.parametrize("posterior", ["observation", "full"])
def test_acting_goes_through_the_states_that_learning_unrolls(posterior):
    """Also across a reset, after which nothing is remembered, and with a random action."""
    settings = {**SMALL, "policy.model.posterior": posterior}
    policy = kit.make_policy("dreamer", VECTOR, space_of(2), modes=("collect",), **settings)
    rng, count, steps = np.random.default_rng(0), 3, 5
    obs = rng.standard_normal((steps, count, 4)).astype(np.float32)
    mode, memories, actions = policy.collect_mode, [], []
    numbers = generator_numbers(policy, steps, count)
    for t in range(steps):
        record = mode.forward(obs[t], random=t == 2)
        memories.append(record["memory"])
        actions.append(record["action"])
        np.testing.assert_array_equal(mode.memory[:, -2:], record["action"])
        if t == 0:
            mode.reset([1])
    assert not memories[0].any()
    assert not memories[1][1].any()
    assert memories[1][0].any()
    after = [*memories[2:], mode.memory]
    # From the state before the second observation on.
    unrolled = Unrolled(policy.net)(
        to_device(obs[1:].reshape(-1, 4)), to_device(np.concatenate(actions[1:-1])), to_device(memories[1]),
        to_device(np.concatenate(numbers[1:])),
    )  # fmt: skip
    states = unrolled.asnumpy().reshape(steps - 1, count, -1)
    for found, expected in zip(states, after, strict=True):
        np.testing.assert_allclose(found, expected[:, :-2], atol=2e-6)


def generator_numbers(policy, steps, count):
    """The uniform numbers that the actor is about to draw, between which it draws noise of actions."""
    actor = policy.actors["collect"]
    kept, made = generator_state(actor.rng), []
    for t in range(steps):
        made.append(actor.draw_noise((count, actor.noise_size), actor.rng))
        actor.rng.standard_normal((count, 2), dtype=np.float32)
        if t == 2:
            actor.random_action(count)
    restore_generator(actor.rng, kept)
    return made


def test_imagination_starts_are_true_states_drawn_evenly():
    filled = np.array([[True, True], [True, False], [True, False]])
    for starts in (3, 6, 12, 15):
        drawn = start_states(filled, starts, np.random.default_rng(starts))
        assert (drawn.dtype, len(drawn)) == (np.int32, starts)
        # The states before and after each true row, numbered as (T + 1, B).
        counts = np.bincount(drawn, minlength=8)
        assert not counts[[5, 7]].any()
        there = counts[[0, 1, 2, 3, 4, 6]]
        assert there.max() - there.min() <= 1
        assert there.sum() == starts


def test_evaluation_takes_the_likeliest_latent_and_action(bench):
    policy, obs = bench.policy, np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    policy.eval_mode.reset()
    policy.collect_mode.reset()
    acted = policy.eval_mode.forward(obs)
    mean, _, rows = policy.actors["eval"].outputs(obs, np.zeros((4, policy.net.memory_size), np.float32))
    np.testing.assert_array_equal(acted, mean)
    np.testing.assert_array_equal(rows[:, -2:], mean)
    assert set(np.unique(rows[:, 6:-2])) == {0.0, 1.0}
    drawn = [policy.collect_mode.forward(obs)["action"] for _ in range(2)]
    assert (np.abs(drawn) <= 1.0).all()
    assert not np.array_equal(*drawn)


def test_slow_critic_and_return_range_belong_to_the_state(bench):
    before, tau = bench.params, bench.settings.tau
    bench.policy.learn_mode.forward(bench.buffer.sample(1, BATCH))
    after = bench.params
    for name in [name for name in before if name.startswith("slow.")]:
        online = after[name.replace("slow.", "critic.")]
        np.testing.assert_allclose(after[name], before[name] + tau * (online - before[name]), rtol=1e-5, atol=1e-6)
    assert before["returns"].tolist() == [0.0, 0.0, 0.0]
    assert after["returns"][2] == pytest.approx(0.01)
    assert after["returns"][1] > after["returns"][0]


def test_choices_are_drawn_from_their_product_where_allowed():
    head = MixedChoicesHead(4, list(COUNTS), 0.1, np.random.default_rng(0))
    rng, count = np.random.default_rng(1), 6
    x, number = rng.standard_normal((count, 4)).astype(np.float32), head.noise((count,), np.random.default_rng(2))
    # Of the last row nothing is allowed, so the highest scores count.
    scores = np.float32([[1, -1, 1, 1, -1]] * (count - 1) + [[-3, -1, -2, -5, -4]])
    params = head.allowed(head(to_device(50.0 * x)), to_device(scores))
    drawn = head.draw(params, to_device(number))
    log_prob, entropy = head.log_prob_entropy(params, drawn)
    action = np.stack([part.argmax(axis=1) for part in np.split(drawn.asnumpy(), ENDS[:-1], axis=1)], axis=1)
    np.testing.assert_array_equal(head.rows(to_device(action.astype(np.int32))).asnumpy(), drawn.asnumpy().round())
    expected, spread = np.zeros(count), np.zeros(count)
    for k, (n, legal) in enumerate([(3, [0, 2]), (2, [0])]):
        weight, bias = (p.asnumpy().astype(np.float64) for p in head.parts[k].linear.get_parameters())
        p = 0.9 * softmax(50.0 * x @ weight.T + bias) + 0.1 / n
        p *= np.array([np.isin(range(n), legal)] * (count - 1) + [np.arange(n) == 1])
        p /= p.sum(axis=1, keepdims=True)
        place = (np.cumsum(p, axis=1) <= number[:, k : k + 1]).sum(axis=1)
        assert action[:, k].tolist() == place.tolist()
        expected += np.log(p[np.arange(count), place])
        spread -= np.where(p > 0, p * np.log(np.maximum(p, 1e-300)), 0.0).sum(axis=1)
    np.testing.assert_allclose(log_prob.asnumpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(entropy.asnumpy(), spread, rtol=1e-5, atol=1e-6)
    assert len(set(action[:-1, 0])) == 2
