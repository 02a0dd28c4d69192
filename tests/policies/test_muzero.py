"""MuZero: one step against float64 NumPy on unrolled sequences, its targets at the end of episodes, and its search."""

import kit
import numpy as np
import pytest
from action_values import linear
from fakes import VECTOR, dict_of, discrete, mask_of
from float64_networks import gradients, names_of
from test_dreamer import ENVS, TIME, history, mlp, np_log_softmax, symexp, symlog, two_hot

from minding.configs.chains.sequence_replay import sequence_buffer
from minding.engine.seeding import generator_state, restore_generator

pytestmark = pytest.mark.eager

SMALL = {
    **{"policy.model.latent": 5, "policy.model.bins": 9, "policy.learn.length": 4, "policy.learn.nstep": 2},
    **{"policy.learn.batch_size": 6, "policy.collect.simulations": 4},
}
MASKED = dict_of(seen=VECTOR, action_mask=mask_of(3))
CONTRACT = {
    "muzero": (VECTOR, discrete(3), SMALL),
    "muzero, masked": (MASKED, discrete(3), {**SMALL, "policy.model.normalize_obs": True}),
}
# The search looks further than one step, so the model is unrolled further too.
LEARNS = {
    **{"run.max_env_step": 1600, "policy.collect.n_sample": 8, "policy.learn.warmup": 64, "policy.learn.nstep": 2},
    **{"policy.other.buffer_size": 2000, "policy.learn.length": 5, "policy.learn.batch_size": 32},
    **{"policy.learn.train_ratio": 80, "policy.collect.simulations": 4, "policy.model.latent": 8},
    **{"policy.learn.learning_rate": 0.005},
}
RATIOS = ("policy.learn.train_ratio=4", "policy.learn.reanalysis=0.5")
RESUMES = {"MuZero": ("CartPole-v1", (*(f"{k}={v}" for k, v in SMALL.items()), *RATIOS))}
BATCH, ACTIONS, UNROLL = 6, 3, 2


def with_a_buffer(bench):
    """Its buffer has episodes of any length that end either way; nothing starts at 0."""
    rng = np.random.default_rng(3)
    for name, p in bench.policy.params.items():
        if not name.startswith("optim"):
            p.asnumpy()[...] += rng.normal(0.0, 0.3, p.shape).astype(np.float32)
    if hasattr(bench, "buffer"):
        return
    bench.buffer = sequence_buffer(bench.policy.config, bench.policy)
    rows = history(bench.buffer.fields, ACTIONS)
    rows["search_policy"] = rng.dirichlet(np.ones(ACTIONS), TIME * ENVS).astype(np.float32)
    rows["strayed"] = rng.random(TIME * ENVS) < 0.2
    bench.buffer.push(rows)


built, bench = kit.benches(
    "muzero",
    action=discrete(ACTIONS),
    count=1,
    learn={"grad_norm": 0.0},
    prepare=with_a_buffer,
    **{**SMALL, "policy.other.buffer_size": 78},
)


def scaled(x):
    low = x.min(axis=-1, keepdims=True)
    return (x - low) / (x.max(axis=-1, keepdims=True) - low + 1e-5)


class Oracle:
    """The loss of the sequences (T, B) of one gradient step, row by row from the formulas of the paper."""

    def __init__(self, bench, batch):
        policy = bench.policy
        kept = generator_state(policy.learn_rng)
        self.taken = policy.targets(batch)["taken"][0]
        restore_generator(policy.learn_rng, kept)
        read = batch.layout.read
        self.rows = {name: read(batch.tables.host, name, batch.index[0]).astype(float) for name in batch.layout.fields}
        self.filled, self.gamma, self.weight = batch.filled[0], policy.cfg.learn.gamma, policy.cfg.learn.value_weight
        self.bins = np.linspace(-policy.cfg.model.bin_limit, policy.cfg.model.bin_limit, policy.cfg.model.bins)
        self.still = kit.params(policy)

    def represent(self, p, net, obs):
        return scaled(linear(p, f"{net}.first", mlp(p, f"{net}.seen.torso", symlog(obs))))

    def logits(self, p, head, latent):
        return linear(p, f"{head}.logits", mlp(p, f"{head}.torso", latent))

    def number(self, p, head, latent):
        return symexp(np.exp(np_log_softmax(self.logits(p, head, latent))) @ self.bins)

    def value_target(self, t, b):
        """z of row t, None if there is none: the rewards of n steps and the target's value after them."""
        rows, filled = self.rows, self.filled[:, b]
        if not filled[t]:
            return 0.0 if rows["terminated"][filled, b].any() else None
        total, k = 0.0, t
        for n in range(2):
            k = t + n
            total += self.gamma**n * rows["reward"][k, b]
            if k + 1 == len(filled) or not filled[k + 1] or rows["strayed"][k + 1, b]:
                break
        if rows["terminated"][k, b]:
            return total
        after = self.represent(self.still, "target", rows["next_obs"][k, b][None])
        return total + self.gamma ** (k - t + 1) * self.number(self.still, "target.value", after)[0]

    def parts(self, p):
        found = {"policy_loss": 0.0, "value_loss": 0.0, "reward_loss": 0.0, "value": 0.0}
        count = self.filled.shape[1]
        for b in range(count):
            latent = self.represent(p, "net", self.rows["obs"][0, b][None])
            # The halved gradient: half of each state is a constant.
            constant = self.represent(self.still, "net", self.rows["obs"][0, b][None])
            ended = self.rows["terminated"][self.filled[:, b], b].any()
            for k in range(UNROLL + 1):
                share = (1.0 if k == 0 else 1.0 / UNROLL) / count
                if k:
                    latent = self.following(p, 0.5 * latent + 0.5 * constant, self.taken[k - 1, b])
                    constant = self.following(self.still, constant, self.taken[k - 1, b])
                    if self.filled[k - 1, b] or ended:
                        reward = self.rows["reward"][k - 1, b] if self.filled[k - 1, b] else 0.0
                        found["reward_loss"] += share * self.entropy(p, "net.reward", latent, reward)
                if self.filled[k, b]:
                    scores = np_log_softmax(linear(p, "net.logits", mlp(p, "net.policy", latent)))[0]
                    found["policy_loss"] -= share * (self.rows["search_policy"][k, b] * scores).sum()
                target = self.value_target(k, b)
                if target is not None and not (self.filled[k, b] and self.rows["strayed"][k, b]):
                    found["value_loss"] += share * self.entropy(p, "net.value", latent, target)
                if k == 0:
                    found["value"] += target / count
        return found

    def following(self, p, latent, action):
        row = np.concatenate([latent, np.eye(ACTIONS)[action][None]], axis=1)
        return scaled(linear(p, "net.later", mlp(p, "net.transition", row)))

    def entropy(self, p, head, latent, number):
        return -(two_hot(np.array([number]), self.bins) * np_log_softmax(self.logits(p, head, latent))).sum()

    def loss(self, p):
        found = self.parts(p)
        return found["policy_loss"] + self.weight * found["value_loss"] + found["reward_loss"]


def test_the_loss_and_its_gradient_are_those_of_the_formulas(bench):
    batch = bench.buffer.sample(1, BATCH)
    oracle = Oracle(bench, batch)
    # Some sequences end within the unrolled steps, with a terminal step or without.
    short = ~oracle.filled[:UNROLL].all(axis=0)
    ended = (oracle.rows["terminated"] * oracle.filled).any(axis=0)
    assert (short & ended).any()
    assert (short & ~ended).any() or (~oracle.filled[-1] & ~ended).any()
    assert (oracle.rows["strayed"] * oracle.filled)[: UNROLL + 1].any()
    expected = {**oracle.parts(oracle.still), "loss": oracle.loss(oracle.still)}
    kit.check_metrics(bench.policy.learn_mode.forward(batch).metrics, expected, rel=2e-5, abs=1e-5)
    kit.check_slopes(oracle.loss, oracle.still, names_of(bench.policy), gradients(bench.policy, "net"))


def test_the_target_follows_the_network(bench):
    before = {name: x.copy() for name, x in bench.params.items()}
    bench.policy.learn_mode.forward(bench.buffer.sample(1, BATCH))
    after, tau = bench.params, bench.settings.tau
    name = "value.logits.weight"
    moved = before[f"target.{name}"] + tau * (after[f"net.{name}"] - before[f"target.{name}"])
    np.testing.assert_allclose(after[f"target.{name}"], moved, rtol=1e-5, atol=1e-7)
    assert not np.array_equal(after[f"net.{name}"], before[f"net.{name}"])


def test_acting_takes_the_best_action_of_a_search(bench):
    obs = np.random.default_rng(5).standard_normal((7, *VECTOR["shape"])).astype(np.float32)
    actor, record = bench.policy.actors["collect"], bench.policy.collect_mode.forward(obs)
    assert record["search_policy"].shape == (7, ACTIONS)
    np.testing.assert_allclose(record["search_policy"].sum(axis=1), 1.0, rtol=1e-5)
    outputs = actor.outputs(obs)
    found = actor.search(outputs, None)
    assert found.visits.sum(axis=1).tolist() == [4] * 7
    assert np.array_equal(bench.policy.eval_mode.forward(obs), found.best)
    # The model's answers in the search are those of the network in float64.
    p, oracle = bench.params, Oracle(bench, bench.buffer.sample(1, BATCH))
    latent = oracle.represent(p, "net", obs)
    np.testing.assert_allclose(outputs[2], latent, rtol=1e-4, atol=1e-5)
    step = actor._step(outputs[2], np.full(7, 1))
    after = np.concatenate([oracle.following(p, latent[k : k + 1], 1) for k in range(7)])
    np.testing.assert_allclose(step.latent, after, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(step.value, oracle.number(p, "net.value", after), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(step.reward, oracle.number(p, "net.reward", after), rtol=1e-3, atol=1e-4)


def test_an_illegal_action_is_never_searched():
    policy = kit.make_policy("muzero", observation=MASKED, action=discrete(ACTIONS), modes=("collect",), **SMALL)
    obs = {
        "seen": np.ones((5, *VECTOR["shape"]), np.float32),
        "action_mask": np.eye(ACTIONS, dtype=bool)[[0, 1, 2, 1, 0]],
    }
    record = policy.collect_mode.forward(obs)
    assert record["action"].tolist() == [0, 1, 2, 1, 0]
    assert np.array_equal(record["search_policy"] > 0, obs["action_mask"])


def test_a_share_of_the_actions_is_random_and_recorded_as_such():
    settings = {**SMALL, "policy.collect.random_share": 0.6}
    policy = kit.make_policy("muzero", observation=MASKED, action=discrete(ACTIONS), modes=("collect",), **settings)
    mask = np.tile(np.eye(ACTIONS, dtype=bool)[0] | np.eye(ACTIONS, dtype=bool)[2], (500, 1))
    obs = {"seen": np.ones((500, *VECTOR["shape"]), np.float32), "action_mask": mask}
    actor = policy.actors["collect"]
    state = actor.state_dict()
    best = actor.search(actor.outputs(obs), actor.rng.gumbel(size=(500, ACTIONS))).best
    actor.load_state_dict(state)
    record = policy.collect_mode.forward(obs)
    assert np.array_equal(record["strayed"], record["action"] != best)
    # One in two of the random actions is the search's.
    assert 0.2 < record["strayed"].mean() < 0.4
    assert not (record["action"] == 1).any()


def test_some_sequences_have_policies_of_a_new_search(bench):
    batch = bench.buffer.sample(1, BATCH)
    stored = bench.policy.targets(batch)["policy_target"]
    bench.settings.reanalysis = 1 / 3
    twin = bench.upcoming()
    twin.integers(0, ACTIONS, batch.index.shape)
    found = bench.policy.targets(batch)["policy_target"]
    np.testing.assert_array_equal(found[:, :, 2:], stored[:, :, 2:])
    actor, count = bench.policy.actors["collect"], 2 * (UNROLL + 1)
    outputs = actor.outputs(batch.layout.read(batch.tables.host, "obs")[batch.index[0, : UNROLL + 1, :2].reshape(-1)])
    expected = actor.search(outputs, twin.gumbel(size=(count, ACTIONS))).policy
    np.testing.assert_allclose(found[0, :, :2].reshape(count, ACTIONS), expected, rtol=1e-6)
    assert not np.allclose(found[:, :, :2], stored[:, :, :2], atol=1e-3)
    assert generator_state(twin) == generator_state(bench.policy.learn_rng)


def test_what_the_other_player_gains_is_lost(bench):
    """The next player's rewards and values count with the opposite sign, in targets and in the search."""
    batch, gamma = bench.buffer.sample(1, BATCH), bench.settings.gamma
    bench.settings.two_players = True
    targets, reward = bench.policy.targets(batch), batch.layout.read(batch.tables.host, "reward")[batch.index][0]
    both = batch.filled[0, :2].all(axis=0) & (batch.layout.read(batch.tables.host, "strayed")[batch.index][0, 1] == 0)
    assert both.any()
    np.testing.assert_allclose(targets["return"][0, 0, both], (reward[0] - gamma * reward[1])[both], rtol=1e-5)
    alone = batch.filled[0, 0] & ~batch.filled[0, 1]
    np.testing.assert_allclose(targets["return"][0, 0, alone], reward[0, alone], rtol=1e-5)
    assert set(np.abs(np.sign(targets["decay"][0, 0, both]))) <= {0.0, 1.0}
    assert (targets["decay"][0, 0, both] >= 0).all()
    assert (targets["decay"][0, 0, alone] <= 0).all()
    actor = bench.policy.make_actor(bench.policy.actors["eval"].network, np.random.default_rng(0))
    assert actor.gamma == -gamma
