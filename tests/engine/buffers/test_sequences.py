"""Sequences and episodes from replay, uniformly and by priority, against lists of episodes."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minding.engine.buffers import Priority, ReplayBuffer, Sequences
from minding.engine.data.batch import Field
from minding.engine.errors import ConfigError, NonFiniteError

FIELDS = {"number": Field(), "age": Field((), "int32")}


def buffer(capacity=20, length=3, seed=0, **options):
    return ReplayBuffer(capacity, FIELDS, sequences=Sequences(length, **options), seed=seed)


def prioritized(capacity=20, length=3, seed=0, burn_in=0, stride=1, whole=False, **options):
    priority, sequences = Priority(**{"alpha": 1.0, **options}), Sequences(length, burn_in, stride, whole)
    return ReplayBuffer(capacity, FIELDS, priority=priority, sequences=sequences, seed=seed)


class World:
    """Environments whose rows say which episode they are of and how old it is: ``1000 * episode + age``.

    Every row that is pushed is also kept in a list for each episode.
    """

    def __init__(self, envs):
        self.envs = envs
        self.episode = [None] * envs
        self.count = 0
        self.episodes = []

    def rows(self, steps):
        """One rollout; `steps`: for each row of time, what each environment does: 'go', 'end', 'reset' or 'fault'."""
        number, sequence, begun, ended = [], [], [], []
        for doing in steps:
            for n, what in enumerate(doing):
                if what in ("reset", "fault"):
                    # No transition; a fault drops the running episode without an end.
                    self.episode[n] = None
                    continue
                new = self.episode[n] is None
                if new:
                    self.episode[n] = {"rows": [], "ended": False}
                    self.episodes.append(self.episode[n])
                    self.count += 1
                    self.episode[n]["id"] = self.count
                episode = self.episode[n]
                number.append(1000 * episode["id"] + len(episode["rows"]))
                episode["rows"].append(number[-1])
                sequence.append(n)
                begun.append(new)
                ended.append(what == "end")
                if what == "end":
                    episode["ended"] = True
                    self.episode[n] = None
        number = np.array(number)
        columns = {"sequence": np.array(sequence, int), "begun": np.array(begun, bool), "ended": np.array(ended, bool)}
        return {"number": number.astype(np.float32), "age": number % 1000, **columns}


@st.composite
def histories(draw):
    """(environments, capacity, rollouts of what they do)."""
    envs = draw(st.integers(1, 3))
    doing = st.lists(st.sampled_from(["go", "go", "go", "end", "reset", "fault"]), min_size=envs, max_size=envs)
    rollouts = draw(st.lists(st.lists(doing, min_size=1, max_size=4), min_size=1, max_size=8))
    return envs, draw(st.integers(12, 24)), rollouts


def fill(history, made, fresh=None, reload_at=None, errors=False):
    """Pushes a history; returns (buffer, the rows stored, all episodes).

    Args:
      fresh: makes a buffer that takes the place of the first one after the rollout `reload_at`.
      errors: whether rows bring their age as their error.
    """
    envs, _, rollouts = history
    world, pushed = World(envs), []
    for k, rollout in enumerate(rollouts):
        rows = world.rows(rollout)
        if len(rows["age"]):
            made.push({**rows, "priority": rows["age"].astype(np.float32)} if errors else rows)
            pushed += rows["number"].astype(int).tolist()
        if k == reload_at:
            other = fresh()
            other.load_state_dict(copy.deepcopy(made.state_dict()))
            made = other
    return made, pushed[-made.capacity :], world.episodes


def numbers(batch):
    return batch.layout.read(batch.tables.host, "number", batch.index).astype(int)


def sequences(batch):
    """For each sequence of all minibatches its numbers, and what is filled and learned, in the order of time."""
    columns = (numbers(batch), batch.filled, batch.learned)
    return zip(*(column.transpose(0, 2, 1).reshape(-1, column.shape[1]) for column in columns), strict=True)


# Uniformly


class EachOnce:
    """A generator that returns each number once, if it is asked for as many as there are."""

    def integers(self, low, high, size):
        self.count = high - low
        return np.resize(np.arange(low, high), size)


def all_windows(made):
    """Each window that can be drawn, once."""
    made.rng = EachOnce()
    made.sample(1, 1)
    return made.sample(1, made.rng.count)


@settings(deadline=None, derandomize=True, max_examples=80)
@given(history=histories(), length=st.integers(1, 5), burn_in=st.integers(0, 4), each=st.booleans())
def test_a_window_has_burn_in_and_rows_of_one_episode_in_order(history, length, burn_in, each):
    """It begins at each row or, so that each row is learned from equally often, also before the first ones."""
    made, stored, episodes = fill(history, buffer(history[1], length, burn_in=burn_in, from_each_row=each))
    if not stored:
        return
    batch = all_windows(made)
    expected = []
    for kept in ([number for number in e["rows"] if number in stored] for e in episodes):
        for start in range(0 if each else 1 - length, len(kept)) if kept else ():
            first = max(start, 0)
            # All the burn-in that there is behind its first row again, and all the rows, then the last of them again.
            before, after = kept[max(0, first - burn_in) : first], kept[first : start + length]
            missing, left = burn_in - len(before), length - len(after)
            expected.append(
                (
                    (*[[*before, *after][0]] * missing, *before, *after, *[after[-1]] * left),
                    (*[False] * missing, *[True] * len(before + after), *[False] * left),
                    (*[False] * burn_in, *[True] * len(after), *[False] * left),
                )
            )
    assert sorted(tuple(tuple(part.tolist()) for part in window) for window in sequences(batch)) == sorted(expected)


@settings(deadline=None, derandomize=True, max_examples=80)
@given(history=histories())
def test_whole_episodes_are_stored_from_their_first_row(history):
    made, stored, episodes = fill(history, buffer(history[1], 12, whole=True))
    whole = [e["rows"] for e in episodes if e["ended"] and set(e["rows"]) <= set(stored) and len(e["rows"]) <= 12]
    assert made.ready == bool(whole)
    if not whole:
        with pytest.raises(ConfigError, match=r"no whole episode is stored yet|sample from an empty buffer"):
            made.sample(1, 1)
        return
    batch = made.sample(4, 16)
    sampled = {tuple(row[filled]) for row, filled, _ in sequences(batch)}
    assert sampled <= {tuple(rows) for rows in whole}
    # The longest of them sets the length: a half and a quarter of the longest possible one are the others.
    longest = max(map(len, sampled))
    assert batch.index.shape[1] == (3 if longest <= 3 else 6 if longest <= 6 else 12)
    assert np.array_equal(batch.learned, batch.filled)
    if len(whole) <= 4:
        assert len(sampled) == len(whole)


# By priority


def priorities(made):
    """Those of the sequences that can be drawn, by the number of their first row and how many rows they may have."""
    state = made.state_dict()
    windows = state["windows"]
    first = made.ring.read("number", windows["first"] % made.capacity).astype(int).tolist()
    found = dict(zip(zip(first, windows["count"].tolist(), strict=True), state["priorities"].tolist(), strict=True))
    assert len(found) == len(first)
    return found


def test_sequences_begin_with_the_highest_priority():
    world, made = World(1), prioritized(length=2, stride=2, eta=0.25, burn_in=1)
    made.push(world.rows([["go"], ["go"], ["go"], ["go"]]))
    assert priorities(made) == {(1000, 2): 1.0, (1002, 2): 1.0}
    batch = made.sample(1, 4)
    # One from each quarter. Errors in the burn-in do not count, whatever they are.
    assert numbers(batch)[0].T.tolist() == [[1000, 1000, 1001]] * 2 + [[1001, 1002, 1003]] * 2
    assert batch.weight.tolist() == [[1.0] * 4]
    errors = np.array([[np.nan] * 4, [1.0, 2.0, 0.0, 4.0], [3.0, 6.0, 1.0, 8.0]], np.float32)
    made.update(batch, errors[None])
    assert priorities(made) == pytest.approx({(1000, 2): 0.25 * 6 + 0.75 * 4, (1002, 2): 0.25 * 8 + 0.75 * 6}, abs=1e-5)
    made.push(world.rows([["go"]]))
    assert priorities(made)[1004, 2] == pytest.approx(6.5, abs=1e-5)
    errors[1, 0] = np.nan
    with pytest.raises(NonFiniteError, match="priority 0 of those given is NaN or infinite"):
        made.update(batch, errors[None])


def test_priorities_are_set_for_sequences_that_are_held():
    world, made = World(1), prioritized(4, length=2, stride=1, eta=0.0)
    made.push(world.rows([["go"], ["go"], ["go"]]))
    assert list(priorities(made)) == [(1000, 2), (1000, 1), (1001, 2), (1002, 2)]
    batch = made.sample(1, 4)
    # The first row and both sequences that begin with it are overwritten.
    made.push(world.rows([["go"], ["go"]]))
    made.update(batch, np.array([[[1, 2, 3, 4], [9, 0, 5, 0]]], np.float32))
    held = {(1001, 2): 4.0, (1002, 2): 4.0, (1003, 2): 1.0, (1004, 2): 1.0}
    assert priorities(made) == pytest.approx(held, abs=1e-5)


@settings(deadline=None, derandomize=True, max_examples=80)
@given(history=histories(), length=st.integers(1, 6), part=st.integers(1, 6), burn_in=st.integers(0, 2))
def test_equal_priorities_sample_each_row_equally_often(history, length, part, burn_in):
    stride = length // part if part <= length and length % part == 0 else 1
    made = prioritized(100, length=length, stride=stride, burn_in=burn_in)
    made, stored, _ = fill(history, made)
    if not stored:
        return
    # Of equal priorities each is drawn once in as many draws as there are.
    batch = made.sample(1, len(priorities(made)))
    drawn, times = np.unique(numbers(batch)[batch.learned], return_counts=True)
    assert drawn.tolist() == sorted(stored)
    assert set(times.tolist()) == {length // stride}


def test_any_number_of_sequences_has_room():
    world, made = World(1), prioritized(60, length=6, stride=1, eta=0.0)
    for _ in range(5):
        rows = world.rows([["end"]] * 30)
        made.push({**rows, "priority": np.arange(30, dtype=np.float32)})
    found = priorities(made)
    assert len(found) == 60 * 6
    assert set(found) == {(1000 * episode, count) for episode in range(91, 151) for count in range(1, 7)}
    assert [found[1000 * episode, 3] for episode in range(91, 151)] == pytest.approx([*range(30)] * 2, abs=1e-5)
    copied = prioritized(60, length=6, stride=1, eta=0.0)
    copied.load_state_dict(copy.deepcopy(made.state_dict()))
    assert priorities(copied) == found
    made.sample(1, 8)


def expected_priorities(stored, episodes, length, stride, eta):
    """Those of all sequences, by first row and number of rows: errors are the ages of rows."""
    found = {}
    for rows in (episode["rows"] for episode in episodes):
        for start in range(stride - length, len(rows), stride):
            first, count = max(start, 0), min(start + length, length)
            if rows[first] in stored:
                ages = [number % 1000 for number in rows[first : first + count]]
                found[rows[first], count] = eta * max(ages) + (1.0 - eta) * np.mean(ages)
    return found


@settings(deadline=None, derandomize=True, max_examples=80)
@given(history=histories(), parts=st.integers(1, 3), stride=st.integers(1, 3))
def test_the_priority_of_a_sequence_follows_from_its_rows(history, parts, stride):
    length = parts * stride
    burn_in = min(2, history[1] - length)
    made = prioritized(history[1], length=length, stride=stride, eta=0.75, burn_in=burn_in)
    made, stored, episodes = fill(history, made, errors=True)
    expected = expected_priorities(stored, episodes, length, stride, 0.75)
    assert priorities(made) == pytest.approx(expected, abs=1e-4)
    if stored:
        assert set(numbers(made.sample(2, 8))[:, burn_in].ravel()) <= {first for first, _ in expected}


KINDS = {
    "windows": lambda capacity, seed=0: buffer(capacity, burn_in=2, seed=seed),
    "whole": lambda capacity, seed=0: buffer(capacity, 12, whole=True, seed=seed),
    "prioritized": lambda capacity, seed=0: prioritized(capacity, 4, stride=2, eta=0.75, burn_in=2, seed=seed),
}


@settings(deadline=None, derandomize=True, max_examples=80)
@given(history=histories(), reload_at=st.integers(0, 7), kind=st.sampled_from(sorted(KINDS)))
def test_a_restored_buffer_samples_as_if_it_had_not_been_saved(history, reload_at, kind):
    make = KINDS[kind]
    made, _, _ = fill(history, make(history[1]), errors=True)
    other, _, _ = fill(history, make(history[1]), lambda: make(history[1], seed=9), reload_at, errors=True)
    if not made.ready:
        return
    mine, theirs = made.sample(2, 8), other.sample(2, 8)
    for name in ("index", "filled", "learned", "weight"):
        assert np.array_equal(getattr(mine, name), getattr(theirs, name))
