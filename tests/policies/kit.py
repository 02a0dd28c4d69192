"""The kit of the tests of algorithms: a policy that is compiled once, its batches, and one step of it in float64.

``built, bench = benches("ddpg", action=space_of(2), learn={"tau": 0.25})`` makes the fixtures of a test file. `bench`
is a `Bench` as it was built, for each test. A class of tests says what a file gives that derives its own from it.
"""

import copy
from typing import ClassVar

import numpy as np
import pytest
from fakes import VECTOR, Batches, rows_of, set_rate, space_of, tiny_config
from float64_networks import finite_differences, gradients, linear_head, moved, normal, params, squashed, value

from minding.engine.process.runtime import to_device
from minding.engine.seeding import generator_state, restore_generator
from minding.policies import get_policy_class
from minding.policies.core.base import MODES
from minding.policies.learning.update import GradientLoop

STEPS, BATCH = 3, 16
"""Gradient steps for which the rows of critics suffice, and rows of each."""
RATE, TAU, SIZE = 0.01, 0.25, 2
LEARNS = {
    "run.max_env_step": 1600,
    "policy.collect.n_sample": 8,
    "policy.learn.batch_size": 32,
    "policy.learn.warmup": 64,
    "policy.learn.update_per_collect": 4,
    "policy.other.buffer_size": 2000,
}
"""With these an algorithm learns the probe from replay, see `of_algorithms`."""
RAW = {"policy.model.normalize_obs": False}
"""Formulas are tested with raw observations, the contract with the default."""


class Bench:
    """A policy, tables for its batches, and the state to which it is put back for each test.

    Args:
      policy: the policy as it is built.
      count: how many rows its tables hold.
      kind: the name of its settings.
    """

    def __init__(self, policy, count, kind=None):
        self.policy, self.root, self.count, self.kind = policy, policy.root, count, kind
        self.batches = Batches(policy, count)
        self._state = copy.deepcopy(policy.state_dict())
        self._settings = copy.deepcopy(policy.cfg.learn)
        self._groups = {**policy.root.optim.groups}

    def restore(self):
        self.policy.load_state_dict(self._state)
        self.policy.cfg.learn.update(copy.deepcopy(self._settings))
        self.root.optim.groups.update(self._groups)
        return self

    @property
    def settings(self):
        return self.policy.cfg.learn

    @property
    def params(self):
        return params(self.policy)

    def hold_still(self):
        """From here on steps are too small to change anything."""
        set_rate(self.policy, 1e-12)

    def rows(self, seed=0, **sizes):
        return rows_of(self.batches.layout, self.count, np.random.default_rng(seed), {**self.batches.sizes, **sizes})

    def batch(self, rows, index=None):
        """A batch of rows, by default of one step on all of them."""
        return self.batches(rows, np.arange(self.count)[None] if index is None else index)

    def learn(self, rows, index=None, **options):
        return self.policy.learn_mode.forward(self.batch(rows, index), **options)

    def upcoming(self):
        """A random stream in the state of the one that the next learn call draws from."""
        twin = np.random.default_rng()
        restore_generator(twin, generator_state(self.policy.learn_rng))
        return twin


def make_policy(algorithm, observation=VECTOR, action=None, learn=None, modes=MODES, **settings):
    """A small policy. `learn`: keys of `policy.learn`; settings: others, by their whole path."""
    settings.update({f"policy.learn.{key}": number for key, number in (learn or {}).items()})
    return get_policy_class(algorithm)(tiny_config(algorithm, observation, action, **settings), modes)


def benches(algorithm, observation=VECTOR, action=None, count=STEPS * BATCH, kinds=None, prepare=None, **settings):
    """The fixtures `built` and `bench` of a test file.

    Args:
      kinds: settings by name, where a file has several policies; each is compiled when a test first asks for it, by
        ``built("name")``, or as the parameter of `bench`. The first one is the default.
      prepare: what is done to a `Bench` before each test.
      settings: those of all, see `make_policy`.
    """
    kinds = kinds or {None: {}}
    default = next(iter(kinds))

    @pytest.fixture(scope="module")
    def built():
        made = {}

        def fresh(kind=default):
            if kind not in made:
                own = {
                    **settings,
                    **kinds[kind],
                    "learn": {**settings.get("learn", {}), **kinds[kind].get("learn", {})},
                }
                made[kind] = Bench(
                    make_policy(algorithm, **{"observation": observation, "action": action, **own}), count, kind
                )
            bench = made[kind].restore()
            if prepare is not None:
                prepare(bench)
            return bench

        return fresh

    @pytest.fixture
    def bench(built, request):
        return built(request.param) if hasattr(request, "param") else built()

    return built, bench


def each_of(kinds):
    """A fixture: the `Bench` of each kind; those after the first one are slow."""
    first, *others = kinds
    params = [first, *(pytest.param(kind, marks=pytest.mark.slow) for kind in others)]

    @pytest.fixture(params=params)
    def each(built, request):
        return built(request.param)

    return each


def one_step(policy, batch):
    """The loop of a single gradient step on a batch, and its inputs as tensors."""
    inputs = policy.inputs(batch, 0.0)
    loop = GradientLoop(policy.root, policy.step_fields, batch, (*inputs.steps,), (*inputs.constants,), False)
    arrays = [batch.index[0], *(x[0] for x in inputs.steps.values())]
    arrays += [np.asarray(x, np.float32) for x in inputs.constants.values()]
    return loop, [to_device(x) for x in arrays]


def check_metrics(found, expected, **tolerance):
    expected = {name: float(number) for name, number in expected.items()}
    chosen = {name: found[name] for name in expected}
    assert chosen == pytest.approx(expected, **{"rel": 1e-5, "abs": 2e-6, **tolerance})


def check_gradients(policy, losses, **tolerance):
    """Gradients of the first step are finite differences of the losses: by group (loss, parameters, part)."""
    for group, (loss, p, part) in losses.items():
        for found, wanted in zip(gradients(policy, group), finite_differences(loss, p, part), strict=True):
            np.testing.assert_allclose(found, wanted, **{"rtol": 1e-4, "atol": 2e-6, **tolerance})


def check_slopes(loss, p, names, found, **tolerance):
    """Gradients are the slopes of a loss in random directions of each parameter."""
    rng = np.random.default_rng(11)
    for name, gradient in zip(names, found, strict=True):
        direction = rng.standard_normal(p[name].shape)
        up, down = (loss({**p, name: p[name] + step * direction}) for step in (1e-6, -1e-6))
        slope = pytest.approx((up - down) / 2e-6, **{"rel": 1e-4, "abs": 1e-4, **tolerance})
        assert (gradient * direction).sum() == slope, name


def check_bits(found, expected):
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name].tobytes() != expected[name].tobytes()] == []


ONLINE = {"target_": "", "targets": "critics", "target.": "net."}
"""What the name of a target begins with, and what stands there in that of the parameter which it follows."""


def online(name):
    start = next(start for start in ONLINE if name.startswith(start))
    return name.replace(start, ONLINE[start], 1)


def parts_of(bench):
    return {name.partition(".")[0] for name in bench.params} - {"optim"}


# Critics and their actor, from single transitions


class CriticStep:
    """A gradient step on the first rows, in float64: a base of the formulas of an algorithm.

    Args:
      bench: before the step.
      rows: of several steps.
    """

    critics, targets = ("critics.q1", "critics.q2"), ("targets.q1", "targets.q2")
    critics_first = True
    """Whether the actor is judged by the critics after their step."""

    def __init__(self, bench, rows):
        self.rows = {name: values[:BATCH] for name, values in rows.items()}
        self.obs, self.action, self.next_obs = (self.rows.get(name) for name in ("obs", "action", "next_obs"))
        self.settings, self.rng = bench.settings, bench.upcoming()

    def smallest(self, p, names, action, obs):
        return np.min([value(p, name, action, obs) for name in names], axis=0)

    def bootstrapped(self, following):
        return self.rows["reward"] + self.rows["discount"] * (1.0 - self.rows["terminated"]) * following

    def critic_loss(self, p, target):
        return 0.5 * sum(np.mean((value(p, name, self.action, self.obs) - target) ** 2) for name in self.critics)

    def q_value(self, p):
        return value(p, self.critics[0], self.action, self.obs).mean()

    def judging(self, p, after):
        """The parameters for the actor's loss: with critics as they are after the step, where it takes them so."""
        if not self.critics_first:
            return p
        part = self.critics[0].partition(".")[0]
        return {**p, **{name: array for name, array in after.items() if name.startswith(f"{part}.")}}

    # An algorithm has its own `target` and `actor_loss`, by the parameters.

    def metrics(self, p, after):
        """Metrics by name, from the parameters before and after the step."""
        judged = self.actor_loss(self.judging(p, after))
        assert not self.critics_first or abs(judged - self.actor_loss(p)) > 1e-3
        return {"critic_loss": self.critic_loss(p, self.target(p)), "q_value": self.q_value(p), "actor_loss": judged}

    def losses(self, p, after):
        """By group of the optimizer: its loss, the parameters at which it has the gradient, and their part."""
        target = self.target(p)
        return {
            "critics": (lambda x: self.critic_loss(x, target), p, "critics"),
            "actor": (self.actor_loss, self.judging(p, after), "net"),
        }


class SoftStep(CriticStep):
    """A step of SAC, the base of maximum-entropy learning."""

    critics_first = False

    def __init__(self, bench, rows):
        super().__init__(bench, rows)
        self.alpha = self.settings["alpha"]
        self.following, self.own = self.rng.standard_normal((2, BATCH, SIZE), dtype=np.float32)

    def target(self, p):
        action, log_prob = squashed(p, "net", self.next_obs, self.following)
        return self.bootstrapped(self.smallest(p, self.targets, action, self.next_obs) - self.alpha * log_prob)

    def drawn(self, p):
        """The actor's own actions, and their log-probabilities."""
        return squashed(p, "net", self.obs, self.own)

    def worth(self, p, action):
        """What the actor takes for the value of actions, (B,)."""
        return self.smallest(p, self.critics, action, self.obs)

    def actor_loss(self, p):
        action, log_prob = self.drawn(p)
        return (self.alpha * log_prob - self.worth(p, action)).mean()

    def metrics(self, p, after):
        log_prob = self.drawn(p)[1].mean()
        # The target entropy is minus the number of actions.
        temperature = {"alpha": self.alpha, "alpha_loss": -np.log(self.alpha) * (log_prob - SIZE)}
        return {**super().metrics(p, after), "entropy": -log_prob, **temperature}


class RegressionStep(CriticStep):
    """A step of advantage-weighted regression."""

    def log_std(self, p):
        return p["net.head.log_std"]

    def weights(self, p):
        weight = np.minimum(np.exp(self.settings.weight_scale * self.advantage(p)), self.settings.weight_limit)
        # What the formulas treat apart is in the batch.
        assert 0 < (weight == self.settings.weight_limit).sum() < BATCH
        return weight

    def actor_loss(self, p, weight):
        log_prob, _ = normal(linear_head(p, "net", "linear", self.obs), self.log_std(p), self.action)
        return -(weight * log_prob).mean()

    def metrics(self, p, after):
        weight = self.weights(p)
        return {
            "critic_loss": self.critic_loss(p, self.target(p)),
            "q_value": self.q_value(p),
            "actor_loss": self.actor_loss(p, weight),
            "advantage": self.advantage(p).mean(),
            "weight": weight.mean(),
        }

    def losses(self, p, after):
        target, weight = self.target(p), self.weights(p)
        return {
            "critics": (lambda x: self.critic_loss(x, target), p, "critics"),
            "actor": (lambda x: self.actor_loss(x, weight), p, "net"),
        }


class CriticTests:
    """Tests of an algorithm that learns critics and an actor from transitions.

    A file gives the fixture `bench` and, in its class, the formulas (`Step`).
    """

    Step: type[CriticStep]
    close: ClassVar = {}
    """Tolerances of gradients, where they are not those of `check_gradients`."""

    def rows(self, bench):
        rows, place = bench.rows(), np.arange(STEPS * BATCH)
        rows["terminated"] = (place % 4 == 0).astype(np.float32)
        rows["action"] = np.tanh(rows["action"])
        if "next_known" in rows:
            rows["next_known"] = (place % 4 > 1).astype(np.float32)
            rows["next_action"] = np.tanh(rows["next_action"])
        return rows

    def learn(self, bench, rows, first=0, steps=1):
        return bench.learn(rows, np.arange(first * BATCH, (first + steps) * BATCH).reshape(steps, BATCH))

    def check_formulas(self, bench):
        rows, p = self.rows(bench), bench.params
        step = self.Step(bench, rows)
        output = self.learn(bench, rows)
        after = bench.params
        assert output.steps == 1
        check_metrics(output.metrics, step.metrics(p, after))
        check_gradients(bench.policy, step.losses(p, after), **self.close)

    def test_metrics_and_gradients_are_those_of_the_formulas(self, bench):
        self.check_formulas(bench)

    def test_every_part_moves_and_targets_follow_their_share(self, bench):
        rows = self.rows(bench)
        for _ in range(2):
            old = bench.params
            self.learn(bench, rows)
            new = bench.params
            assert moved(old, new) == parts_of(bench)
            for name in [name for name in new if name.startswith(tuple(ONLINE))]:
                expected = (1 - TAU) * old[name] + TAU * new[online(name)]
                np.testing.assert_allclose(new[name], expected, rtol=1e-5, atol=1e-6)

    def check_due_steps(self, bench, always):
        """Every third step moves all parts, across calls; the others the parts `always`."""
        bench.settings["policy_delay"] = 3
        rows, parts = self.rows(bench), []
        for k in range(4):
            old = bench.params
            self.learn(bench, rows, k % STEPS)
            parts.append(moved(old, bench.params))
        assert parts == [always, always, parts_of(bench), always]

    def check_steps_in_a_call(self, bench):
        """Steps in one call are those of single calls, to the bit, with the same random numbers."""
        start, rows = copy.deepcopy(bench.policy.state_dict()), self.rows(bench)
        single = [self.learn(bench, rows, k).metrics for k in range(STEPS)]
        expected = copy.deepcopy(bench.policy.state_dict())
        bench.policy.load_state_dict(start)
        output, found = self.learn(bench, rows, 0, STEPS), bench.policy.state_dict()
        assert (output.steps, found["rng"]) == (STEPS, expected["rng"])
        check_bits(found["params"], expected["params"])
        for name in single[0]:
            numbers = [metrics[name] for metrics in single]
            assert output.metrics[name] == pytest.approx(np.mean(numbers), rel=1e-4, abs=1e-6), name


def disturb(*targets):
    """Makes targets differ from what they follow, as the `prepare` of `benches`; names of parts."""

    def prepare(bench):
        for p in (p for part in targets for p in getattr(bench.root, part).get_parameters()):
            p.asnumpy()[...] += 0.1

    return prepare


def critic_benches(algorithm, *targets, prepare=None, kinds=None, model=None, **learn):
    """The fixtures of an algorithm of `CriticTests`, with targets that differ from what they follow."""

    def disturbed(bench):
        disturb(*targets)(bench)
        if prepare is not None:
            prepare(bench)

    learn = {"learning_rate": RATE, "tau": TAU, **learn}
    model = {**RAW, **{f"policy.model.{key}": value for key, value in (model or {}).items()}}
    return benches(algorithm, action=space_of(SIZE), kinds=kinds, prepare=disturbed, learn=learn, **model)
