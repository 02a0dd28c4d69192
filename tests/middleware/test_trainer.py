"""On-policy learning: which rows reach the learner, and how often."""

import tracemalloc

import numpy as np
import pytest
from fakes import ReadingLearner

from minding.engine import OnlineRLContext, Task
from minding.engine.data.batch import Field
from minding.middleware import multistep_trainer, trainer
from minding.middleware.trainer import RolloutStore

FIELDS = {"number": Field()}


def data(count, invalid=()):
    valid = np.ones(count, bool)
    valid[list(invalid)] = False
    return {"number": np.arange(count, dtype=np.float32), "valid": valid, "unused": np.zeros((count, 3))}


def context(**fields):
    ctx = OnlineRLContext(**{"env_step": 50, "train_iter": 7, **fields})
    ctx.begin_iteration()
    return ctx


@pytest.fixture
def train(counting_config):
    def run(rows, times=1, seed=0):
        settings = {"policy.learn.n_epoch": 3, "policy.learn.n_minibatch": 2, "run.max_env_step": 100}
        cfg = counting_config("ppo", seed=seed, **settings)
        learner = ReadingLearner(FIELDS)
        middleware = multistep_trainer(cfg, learner)
        for _ in range(times):
            ctx = context(train_data=rows)
            middleware(ctx)
        return ctx, [step["number"].astype(int).tolist() for step in learner.steps], learner

    return run


def test_every_pass_takes_every_row_once_shuffled_anew(train):
    ctx, steps, learner = train(data(8))
    assert [len(step) for step in steps] == [4] * 6
    passes = [steps[i] + steps[i + 1] for i in (0, 2, 4)]
    assert all(sorted(rows) == list(range(8)) for rows in passes)
    assert passes[0] != passes[1] != passes[2]
    assert (ctx.train_iter, ctx.train_output, learner.progress) == (13, {"loss": 0.5, "grad_steps": 6}, [0.5])


def test_reset_rows_are_never_learned_from(train):
    _, steps, learner = train(data(8, invalid=(0, 5, 6)))
    # Minibatches keep their size; places that are left repeat rows of the same minibatch, and count for nothing.
    assert [len(step) for step in steps] == [4] * 6
    assert learner.counts == [[1, 1, 1, 0], [1, 1, 0, 0]] * 3
    for i in (0, 2, 4):
        counted = [steps[k][:number] for k, number in ((i, 3), (i + 1, 2))]
        assert sorted(counted[0] + counted[1]) == [1, 2, 3, 4, 7]
        assert all(set(steps[i + k]) == set(counted[k]) for k in range(2))
    assert train(data(8))[2].counts == []


def test_with_fewer_rows_than_minibatches_each_is_a_minibatch(train):
    ctx, steps, learner = train(data(8, invalid=range(7)))
    assert (steps, learner.counts) == ([[7] * 4] * 3, [[1, 0, 0, 0]] * 3)
    assert ctx.train_output["grad_steps"] == 3


def test_the_seed_decides_the_order(train):
    assert train(data(8))[1] == train(data(8))[1]
    assert train(data(8))[1] != train(data(8), seed=1)[1]
    assert train(data(8), times=2)[1][:6] != train(data(8), times=2)[1][6:]


def test_the_order_goes_on_from_a_saved_state(counting_config):
    cfg = counting_config("ppo")
    learners = [ReadingLearner(FIELDS) for _ in range(2)]
    first, second = (multistep_trainer(cfg, learner) for learner in learners)
    first(context(train_data=data(8)))
    second.load_state_dict(first.state_dict())
    for each in (first, second):
        each(context(train_data=data(8)))
    after = [[step["number"].tolist() for step in learner.steps[-16:]] for learner in learners]
    assert after[0] == after[1]


def test_the_plain_trainer_makes_one_step_on_all_valid_rows(counting_config):
    learner = ReadingLearner(FIELDS)
    middleware = trainer(counting_config("ppo", **{"run.max_env_step": 200}), learner)
    ctx = context(train_data=data(4, invalid=(1,)))
    middleware(ctx)
    assert [step["number"].tolist() for step in learner.steps] == [[0, 2, 3, 0]]
    assert learner.counts == [[1, 1, 1, 0]]
    assert (ctx.train_iter, ctx.train_output["loss"], learner.progress) == (8, 0.5, [0.25])


@pytest.mark.parametrize("make", [trainer, multistep_trainer])
def test_a_rollout_of_reset_rows_only_makes_no_gradient_step(make, counting_config):
    learner = ReadingLearner(FIELDS)
    ctx = context(train_data=data(4, invalid=range(4)))
    make(counting_config("ppo", **{"policy.learn.n_minibatch": 2}), learner)(ctx)
    assert (learner.steps, ctx.train_iter, ctx.train_output) == ([], 7, None)


def test_schedules_go_by_the_start_of_the_data(counting_config):
    learner = ReadingLearner(FIELDS)
    cfg = counting_config("a3c", **{"run.max_env_step": 100, "policy.learn.anneal_steps": 400})
    learn, ctx = trainer(cfg, learner), OnlineRLContext()
    # Three iterations of 50 environment steps, by hand and then by a task; the last begins again from a saved state.
    for _ in range(2):
        ctx.env_step += 50
        ctx.train_data = data(8)
        learn(ctx)
        ctx = ctx.renew()
    task = Task()
    with task.start(ctx=OnlineRLContext()):
        task.ctx.load_state_dict(ctx.state_dict())
        task.use(lambda ctx: setattr(ctx, "env_step", ctx.env_step + 50))
        task.use(lambda ctx: setattr(ctx, "train_data", data(8)))
        task.use(learn)
        task.run(max_step=4)
    assert learner.progress == [0.0, 0.125, 0.25, 0.375]


# Whole sequences


SEQUENCES = {"number": Field(), "memory": Field((2,))}


def sequence_data(steps, envs, invalid=()):
    """Rows in the order of time; a row's number is ``10 * environment + step``."""
    t, n = np.divmod(np.arange(steps * envs), envs)
    memory = np.zeros((steps * envs, 2), np.float32)
    return {**data(steps * envs, invalid), "number": (10.0 * n + t).astype(np.float32), "sequence": n, "memory": memory}


@pytest.fixture
def sequence_trainer(counting_config):
    def make(factory=multistep_trainer, minibatches=2, envs=4):
        settings = {"policy.learn.n_epoch": 3, "policy.learn.n_minibatch": minibatches}
        learner = ReadingLearner(SEQUENCES)
        return factory(counting_config("ppo", **settings, **{"env.collector_env_num": envs}), learner), learner

    return make


def test_a_policy_with_memory_gets_sequences_in_order_of_time(sequence_trainer):
    middleware, learner = sequence_trainer()
    middleware(context(train_data=sequence_data(3, 4, invalid=(5,))))
    assert len(learner.steps) == 6
    orders = []
    for step in learner.steps:
        number = step["number"]
        assert number.shape == (3, 2)
        assert np.array_equal(number - number[0], [[0, 0], [1, 1], [2, 2]])
        orders += (number[0] / 10).astype(int).tolist()
    passes = [orders[i : i + 4] for i in (0, 4, 8)]
    assert all(sorted(one) == [0, 1, 2, 3] for one in passes)
    assert passes[0] != passes[1] != passes[2]


def test_with_memory_there_is_no_minibatch_without_environments(sequence_trainer):
    middleware, learner = sequence_trainer(minibatches=16)
    assert middleware.requirements() == []
    middleware(context(train_data=sequence_data(3, 4)))
    assert [step["number"].shape for step in learner.steps] == [(3, 1)] * 12


def test_a_rollout_is_written_into_its_tables_without_a_copy():
    rows, image = 64, (4, 32, 32)
    store = RolloutStore({"image": Field(image, "uint8"), "number": Field(), "given": Field(default=2.0)}, "here")
    rng = np.random.default_rng(0)
    first, second = (
        {"image": rng.integers(0, 256, (rows, *image), np.uint8), "number": rng.normal(size=rows).astype(np.float32)}
        for _ in range(2)
    )
    tables = store.put(first)
    tracemalloc.start()
    try:
        assert store.put(second) is tables
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < second["image"].nbytes / 4
    for table, packed in zip(tables.parameters, tables.layout.pack(second), strict=True):
        assert np.array_equal(table.asnumpy(), packed)
