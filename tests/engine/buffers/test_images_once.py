"""Images that are stored once: the successor of every row is the one that stored successors have."""

import numpy as np
import pytest
from fakes import tiny_config
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import Stream

from benchmarks.fingerprint import fingerprint
from minding.engine.buffers import ReplayBuffer, Sequences
from minding.engine.buffers import ring as storage
from minding.engine.chain.context import OnlineRLContext
from minding.engine.data.batch import Field, RowLayout
from minding.middleware import data_pusher, nstep_reward_enhancer

PIXELS = (1, 2, 2)
FIELDS = {
    "obs": Field(PIXELS, "uint8"),
    "next_obs": Field(PIXELS, "uint8"),
    "reward": Field(),
    "terminated": Field(),
    "discount": Field(default=0.9),
}


def pushing(buffers, n=1):
    """Pushes rollouts into all buffers as a chain does."""
    cfg = tiny_config("dqn", **{"policy.learn.nstep": n})
    enhancer = nstep_reward_enhancer(cfg)

    def push(rollout):
        ctx = OnlineRLContext()
        ctx.trajectories = rollout
        enhancer(ctx)
        for buffer in buffers:
            data_pusher(cfg, buffer)(ctx)

    return push


def check_same(once, stored):
    assert len(once) == len(stored)
    rows = np.arange(len(stored))
    for name in stored.fields:
        assert np.array_equal(once.ring.read(name, rows), stored.ring.read(name, rows)), name


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=14),
    n=st.integers(1, 4),
    resets=st.booleans(),
    # The largest push: 3 environments, a rollout of 6 steps and the 3 that waited for their return.
    capacity=st.sampled_from([27, 36, 200]),
    collectors=st.sampled_from([1, 2]),
    reloads=st.sets(st.integers(0, 13), max_size=2),
)
def test_successors_are_the_observations_that_followed(seed, lengths, n, resets, capacity, collectors, reloads):
    streams = [Stream(seed + k, sum(lengths), resets=resets, image=PIXELS) for k in range(collectors)]
    buffers = [ReplayBuffer(capacity, FIELDS, images_once=given) for given in (True, False)]
    push, start = pushing(buffers, n), 0
    for k, length in enumerate(lengths):
        for number, stream in enumerate(streams):
            rollout = stream.rollout(start, start + length)
            rollout.collector = number
            push(rollout)
            check_same(*buffers)
        start += length
        if k in reloads:
            state, buffers[0] = buffers[0].state_dict(), ReplayBuffer(capacity, FIELDS, images_once=True)
            buffers[0].load_state_dict(state)
            assert fingerprint(buffers[0].state_dict()) == fingerprint(state)
            check_same(*buffers)


def test_spare_places_of_final_observations_grow_and_are_reused(monkeypatch):
    monkeypatch.setattr(storage, "FEW", 1)
    stream = Stream(3, 400, image=PIXELS)
    once, stored = (ReplayBuffer(90, FIELDS, images_once=given) for given in (True, False))
    push = pushing([once, stored], 3)
    for start in range(0, 400, 5):
        push(stream.rollout(start, start + 5))
        check_same(once, stored)
    # One place per episode among 90 rows, and three per environment: it grew, and not without end.
    assert 16 < once.ring.tables.spare < 90


def test_images_are_stored_once_and_take_half_the_memory():
    fields = {
        "obs.n": Field((3,)),
        "obs.i": Field((2,), "uint8"),
        "next_obs.n": Field((3,)),
        "other": Field((2,), "uint8"),
    }
    layout = RowLayout({**fields, "next_obs.i": Field((2,), "uint8")}, images_once=True)
    assert layout.linked == ("next_obs.i",)
    assert [t.shape for t in layout.empty(10, 3)] == [(10, 6), (13, 2), (10, 2)]
    assert list(layout.columns) == list(layout.fields)
    assert RowLayout({**fields, "next_obs.i": Field((3,), "uint8")}, images_once=True).linked == ()
    assert not ReplayBuffer(5, {"obs": Field((3,)), "next_obs": Field((3,))}, images_once=True).takes_order
    shape = (4, 84, 84)
    fields = {**FIELDS, "obs": Field(shape, "uint8"), "next_obs": Field(shape, "uint8")}
    once, stored = (
        sum(t.nbytes for t in ReplayBuffer(1600, fields, images_once=given).ring.tables.host) for given in (True, False)
    )
    assert once / stored == pytest.approx(17 / 32, rel=1e-3)


# Learning from them


def test_sequences_find_their_successors_and_a_batch_its_rows():
    once, stored = (
        ReplayBuffer(60, FIELDS, sequences=Sequences(3), images_once=given, seed=1) for given in (True, False)
    )
    stream, push = Stream(8, 48, image=PIXELS), pushing([once, stored], 1)
    for start in range(0, 48, 4):
        push(stream.rollout(start, start + 4))
    batches = [buffer.sample(2, 5) for buffer in (once, stored)]
    (one, index), (two, other) = (batch.distinct() for batch in batches)
    assert np.array_equal(index, other)
    for name in FIELDS:
        assert np.array_equal(one[name], two[name])
