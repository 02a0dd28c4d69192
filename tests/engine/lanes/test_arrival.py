"""`lanes.order=arrival`: an iteration takes a rollout that has arrived, and none gets too old. With a limiter,
collectors and learner run independently within its bounds."""

import collections
import dataclasses
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_toys import STEPS, ToyCollector, ToyContext, ToyEnv, ToyPolicy, random_delay, run

from minding.configs import compile_run
from minding.configs.chains import off_policy
from minding.engine import Config, OnlineRLContext, Task, declare
from minding.engine.buffers import Table, limiters
from minding.engine.chain.pipeline import chain_nodes
from minding.engine.data.batch import Field
from minding.engine.data.rollout import Rollout
from minding.engine.lanes.division import divide
from minding.engine.lanes.free_running import free_run
from minding.engine.lanes.order import next_rows
from minding.engine.types import LearnOutput
from minding.middleware import OffPolicyLearner, data_pusher
from minding.policies import get_policy_class

FIELDS = {"obs": Field((2,)), "number": Field()}
GATE = threading.Event()
TASKS = []

# Which rollout is next


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 5), more=st.integers(0, 4), choices=st.lists(st.integers(0, 4), min_size=40, max_size=40))
def test_no_rollout_gets_older_than_allowed_whoever_is_fast(rows, more, choices):
    staleness = max(1, rows - 1 + more)
    under_way = [collections.deque() for _ in range(rows)]
    for version, choice in enumerate(choices):
        while sum(map(len, under_way)) < min(staleness, rows) + 1:
            min(under_way, key=len).append(version)
        allowed = next_rows(under_way, version, staleness)
        taken = under_way[allowed[choice % len(allowed)]].popleft()
        assert 0 <= version - taken <= staleness


def wait_for_the_gate(collector, count, step):
    """The second collector begins only once the main process lets it."""
    if collector.index == 1 and count == 0:
        assert GATE.wait(30.0)


def open_the_gate(task, ctx):
    if ctx.total_step == 2:
        GATE.set()


def test_a_slow_collector_is_passed_over_for_a_while():
    GATE.clear()
    lanes = {"order": "arrival", "max_staleness": 4, "collectors": 2, "transport": "threads"}
    found = run(12, lanes, event=wait_for_the_gate, also=(open_the_gate,))
    workers = found.record.column("rollout", "worker")
    # With the exact order the second iteration would have waited for a collector that waits for the third.
    assert workers[:3] == [0, 0, 0]
    assert 1 in workers
    assert max(lag["max"] for lag in found.record.column("policy_lag")) <= 4
    # Nothing is lost or used twice, and counters go on.
    for worker in (0, 1):
        counts = [row["rollout"]["count"] for row in found.record.rows if row["rollout"]["worker"] == worker]
        assert counts == list(range(len(counts)))
    steps = found.record.column("env_step")
    assert all(3 <= after - before <= 4 for before, after in zip([0, *steps], steps))
    assert found.task.resume_guarantee == "arrival"


# With a limiter: the decision


# Runs of toys


@declare(
    role="collect",
    reads=("env_step",),
    optional=("collect_kwargs",),
    writes=("trajectories", "env_step", "env_episode"),
)
class RolloutCollector(ToyCollector):
    """As its base, which writes a dict, with what becomes of a rollout."""

    def __call__(self, ctx):
        inner = ToyContext(env_step=ctx.env_step)
        super().__call__(inner)
        steps = inner.env_step - ctx.env_step
        ctx.env_step = inner.env_step
        toy = inner.trajectories
        shape = (STEPS, 1)
        ended = np.zeros(shape, np.bool_)
        ctx.trajectories = Rollout(
            obs=toy["obs"].astype(np.float32)[:, None],
            last_obs=np.zeros((1, 2), np.float32),
            final_obs=None,
            ends=np.zeros((0, 2), np.int64),
            action=toy["action"][:, None],
            reward=np.zeros(shape, np.float32),
            terminated=ended,
            truncated=ended,
            valid=None if steps == STEPS else (np.arange(STEPS) < steps)[:, None],
            record={"number": np.full(shape, 1000 * toy["worker"] + toy["count"], np.float32)},
        )


class Learner:
    """Learn mode that changes the toy policy; draws what it is given."""

    fields = FIELDS

    def __init__(self, policy):
        self._policy = policy

    def forward(self, batch, progress=0.0):
        self._policy.weights["bias"] += 0.1
        return LearnOutput({"loss": 0.5}, steps=len(batch.index))


@declare(reads=("env_step", "train_iter"), optional=("trajectories", "train_output", "policy_lag"))
class Watch:
    """Runs in each iteration, and notes where both sides are."""

    def __init__(self, table, *also):
        self.rows, self._table, self._also = [], table, also

    def __call__(self, ctx):
        rollout = ctx.trajectories
        self.rows.append(
            {
                "number": None if rollout is None else int(np.ravel(rollout.record.get("number", 0))[0]),
                "learned": ctx.train_output is not None,
                "inserted": self._table.inserted,
                "sampled": self._table.sampled,
                "env_step": ctx.env_step,
                "train_iter": ctx.train_iter,
                "lag": ctx.policy_lag,
                "total_step": ctx.total_step,
            }
        )
        for call in self._also:
            call(ctx)


@dataclasses.dataclass
class Parts:
    task: Task
    policy: ToyPolicy
    table: Table
    watch: Watch
    seen: list

    def diffs(self):
        """How far inserts are ahead, in samples, once sampling began."""
        limiter = self.table.limiter
        return [
            row["inserted"] * limiter.samples_per_insert - row["sampled"] for row in self.watch.rows if row["sampled"]
        ]


def build(task, config, limiter, *, event=None, also=(), learn=None, **table):
    """Collect, push, learn, watch, on a task that was started."""
    learn = {"warmup": 3, "batch_size": 4, "update_per_collect": 2, **(learn or {})}
    cfg = config(**{f"policy.learn.{key}": value for key, value in learn.items()}, **{"run.max_env_step": 1000})
    policy, table = ToyPolicy(), Table(1000, FIELDS, limiter=limiter, **table)
    watch, seen = Watch(table, *also), []
    task.use(RolloutCollector(policy.mode, ToyEnv(), event))
    task.use(data_pusher(cfg, table)).use(OffPolicyLearner(cfg, Learner(policy), table))
    # Declares nothing, and so runs with rollouts only.
    task.use(lambda ctx: seen.append(ctx.trajectories.record["number"][0, 0]))
    task.use(watch)
    return Parts(task, policy, table, watch, seen)


def lanes(collectors=2, **changes):
    options = {"order": "arrival", "max_staleness": 4, "collectors": collectors, "transport": "threads"}
    return {**options, **changes}


def free(config, limiter, steps, options=None, **parts):
    task = Task()
    with task.start(True, OnlineRLContext(), lanes=options or lanes()):
        made = build(task, config, limiter, **parts)
        try:
            task.run(max_step=steps)
        finally:
            GATE.set()
    return made


def test_eight_collectors_push_into_one_table_within_bounds(counting_config):
    # A call draws 8 samples, a rollout of 4 rows allows 16: half of the iterations can have none.
    made = free(
        counting_config, limiters.ratio(4.0, 8, 16.0), 150, lanes(collectors=8, max_staleness=8), event=random_delay
    )
    rows, limiter = made.watch.rows, made.table.limiter
    assert len(rows) == 150
    assert limiter.min_diff <= min(made.diffs()) <= max(made.diffs()) <= limiter.max_diff
    taken = [row["number"] for row in rows if row["number"] is not None]
    # Each rollout is used once, and those of a collector in their order.
    assert len(set(taken)) == len(taken)
    for worker in range(8):
        counts = [number % 1000 for number in taken if number // 1000 == worker]
        assert counts == list(range(len(counts)))
    assert {number // 1000 for number in taken} == set(range(8))
    # What has no rollout learns; counters agree with the table.
    assert all(row["learned"] or row["number"] is not None for row in rows)
    assert 0 < len(taken) < len(rows)
    assert [row["env_step"] for row in rows] == [row["inserted"] for row in rows]
    assert [row["train_iter"] * 4 for row in rows] == [row["sampled"] for row in rows]
    assert [row["total_step"] for row in rows] == list(range(150))
    # Whoever declares nothing may read a rollout, and is left out where there is none.
    assert made.seen == taken
    # The age of weights, in learner iterations: (2 error + staleness x rows x ratio) / samples of a call.
    ages = [row["lag"]["max"] for row in rows if row["lag"] is not None]
    assert len(ages) == len(taken)
    assert max(ages) <= (2 * 16 + 8 * 4 * 4) / 8
    assert made.task.resume_guarantee == "arrival"


@pytest.mark.parametrize("order", ["fifo", "lifo"])
def test_from_a_queue_or_a_stack_each_row_is_learned_from_once(counting_config, order):
    table = {"sampler": order, "remover": order, "max_times_sampled": 1}
    made = free(counting_config, limiters.queue(16), 60, learn={"warmup": 1}, **table)
    last = made.watch.rows[-1]
    # What is not drawn yet is still there, and at most as much as may wait.
    assert 0 <= last["inserted"] - last["sampled"] == len(made.table) <= 16
    assert last["sampled"] > 100
    assert 0 <= min(made.diffs()) <= max(made.diffs()) <= 16


# Events of collectors; what is sent to one is copied, but for variables of this module.


def wait_after_two(collector, count, step):
    assert count != 2 or GATE.wait(30.0)


def wait_at_once(collector, count, step):
    assert GATE.wait(30.0)


def interrupt_and_wait(collector, count, step):
    TASKS[0].interrupt("SIGTERM")
    assert GATE.wait(30.0)


def test_without_a_rollout_the_learner_continues_to_the_limit(counting_config):
    GATE.clear()
    tables = []

    def open_gate(ctx):
        # 2 x 4 rows: 32 samples, 16 more by the error of the limiter.
        if tables[0].sampled == 48:
            GATE.set()

    task = Task()
    with task.start(True, OnlineRLContext(), lanes=lanes(collectors=1)):
        made = build(task, counting_config, limiters.ratio(4.0, 1, 20.0), event=wait_after_two, also=(open_gate,))
        tables.append(made.table)
        task.run(max_step=12)
    rows = made.watch.rows
    taken = [row["number"] for row in rows]
    assert [number for number in taken if number is not None][:3] == [0, 1, 2]
    before = rows[taken.index(2) - 1]
    assert (before["number"], before["sampled"], before["inserted"]) == (None, 48, 8)


def test_a_signal_ends_the_wait(counting_config):
    GATE.clear()
    TASKS[:] = [task := Task()]
    with task.start(True, OnlineRLContext(), lanes=lanes(collectors=1)):
        made = build(task, counting_config, limiters.ratio(4.0, 1, 20.0), event=interrupt_and_wait)
        task.run(max_step=10)
        GATE.set()
    assert (task.stop_reason, made.watch.rows) == ("SIGTERM", [])


def test_a_resumed_run_uses_the_limiter_of_its_new_settings(counting_config):
    first = free(counting_config, limiters.ratio(4.0, 8, 16.0), 40)
    state = first.task.state_dict()
    state["middleware"] = {name: unblocked(value) for name, value in state["middleware"].items()}
    last = first.watch.rows[-1]
    task = Task()
    with task.start(True, OnlineRLContext(), lanes=lanes()):
        made = build(task, counting_config, limiters.ratio(1.0, 8, 16.0))
        task.load_state_dict(state)
        assert (made.table.inserted, made.table.sampled) == (last["inserted"], last["sampled"])
        task.run(max_step=400)
    rows, limiter = made.watch.rows, made.table.limiter
    assert rows[0]["total_step"] == 40
    # A fourth of the samples: nothing is drawn until there are rows enough, and from then on the new bounds hold.
    resumed = [row["inserted"] - row["sampled"] for row in rows]
    assert resumed[0] < limiter.min_diff
    drawing = next(k for k, row in enumerate(rows) if row["learned"])
    assert resumed[:drawing] == sorted(resumed[:drawing])
    assert all(row["number"] is not None for row in rows[:drawing])
    assert all(limiter.min_diff <= diff <= limiter.max_diff for diff in resumed[drawing:])


def unblocked(state):
    """As it is read from a checkpoint."""
    if isinstance(state, dict):
        return {name: unblocked(value) for name, value in state.items()}
    return np.array(state.array) if hasattr(state, "array") and not isinstance(state, np.ndarray) else state


def test_the_ratio_of_the_learner_bounds_its_steps_too(counting_config):
    # One call of 2 steps for 4 environment steps, although the limiter would allow more at a time.
    learn = {"update_per_collect": 2, "updates_per_step": 0.5}
    made = free(counting_config, limiters.ratio(2.0, 8, 64.0), 30, learn=learn)
    rows = made.watch.rows
    assert all(row["number"] is not None for row in rows)
    assert rows[-1]["train_iter"] <= 0.5 * rows[-1]["env_step"]


# Which chains


def declared(name, role=None, **fields):
    @declare(role=role, **fields)
    def make():
        return lambda ctx: None

    middleware = make()
    middleware.declaration = dataclasses.replace(middleware.declaration, name=name)
    return middleware


class Pusher:
    """Fills something with a limiter."""

    declaration = declared("pusher", "learn", reads=("trajectories",)).declaration
    bounded = True

    def __call__(self, ctx): ...

    def cannot_insert(self, rollouts):
        return None


class Drawer:
    declaration = declared("drawer", "learn", reads=("train_iter",), writes=("train_output",)).declaration

    def __call__(self, ctx): ...

    def cannot_learn(self, ctx):
        return None


def found(*later, collect=None):
    """The free run of collector and `later`."""
    collector = collect or declared("collector", "collect", reads=("env_step",), writes=("trajectories", "env_step"))
    nodes = chain_nodes([collector, *later])
    ctx = OnlineRLContext()
    names = [field.name for field in dataclasses.fields(ctx)]
    part = divide(nodes, ctx.kept, names).collect
    return free_run([], nodes[1:], part, names, ctx.kept, 1.0)


def needing(run):
    return [node.name for node in run.needing]


def test_members_that_need_a_missing_rollout_are_skipped():
    marker = declared("marker", reads=("trajectories",), writes=("train_data",))
    trainer = declared("trainer", "learn", reads=("train_data", "train_iter"), writes=("train_output",))
    logger = declared("logger", reads=("env_step",), optional=("trajectories", "train_output"))
    own = lambda ctx: None  # noqa: E731
    run = found(marker, Pusher(), Drawer(), trainer, logger, own)
    # An on-policy trainer beside it learns from each rollout once.
    assert needing(run) == ["marker", "pusher", "trainer", "<lambda>"]
    assert (len(run.inserters), len(run.samplers)) == (1, 1)
    trainer = declared("trainer", "learn", reads=("trajectories", "train_iter"), writes=("train_output",))
    unbounded = Pusher()
    unbounded.bounded = False
    assert found(unbounded, Drawer()) is None
    assert found(Pusher(), trainer) is None
    assert found(trainer) is None
    # What the table would get is not what is there.
    assert found(declared("doubler", reads=("trajectories",), writes=("trajectories",)), Pusher(), Drawer()) is None


# DQN


def test_dqn_learns_from_a_table_in_the_order_of_arrival():
    table = {"sampler": "prioritized", "limiter": "ratio", "limiter_rows": 64, "limiter_error": 128.0}
    cfg = compile_run(
        Config(
            env={"env_id": "CartPole-v1", "collector_env_num": 4, "evaluator_env_num": 2, "max_episode_steps": 30},
            policy={
                "type": "dqn",
                "model": {"hidden": [16]},
                "learn": {"batch_size": 16, "warmup": 32, "update_per_collect": 2, "nstep": 2},
                "collect": {"n_sample": 16},
                "eval": {"freq": 64, "n_episode": 2},
                "other": {"replay": "table", "table": {**table, "samples_per_insert": 4.0}},
            },
        )
    )
    policy, task = get_policy_class("dqn")(cfg), Task()
    with task.start(True, OnlineRLContext(), lanes=lanes()):
        off_policy.fill(task, cfg, policy)
        table = next(member.buffer for member in task.members if isinstance(member, data_pusher))
        watch = Watch(table)
        task.use(watch).run(max_step=30)
    rows, limiter = watch.rows, table.limiter
    assert [row["train_iter"] * 16 for row in rows] == [row["sampled"] for row in rows]
    assert 0 < sum(row["number"] is None for row in rows) < 30
    diffs = [row["inserted"] * 4 - row["sampled"] for row in rows if row["sampled"]]
    assert limiter.min_diff <= min(diffs) <= max(diffs) <= limiter.max_diff
    assert task.ctx.last_eval_iter > 0
