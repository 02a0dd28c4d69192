"""Episodes and windows from replay, against lists of episodes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minding.engine.buffers import EpisodeBuffer
from minding.engine.data.batch import Field
from minding.engine.errors import ConfigError, ShapeError

FIELDS = {"number": Field(), "age": Field((), "int32")}


def buffer(capacity=20, length=3, **options):
    return EpisodeBuffer(capacity, FIELDS, length=length, **options)


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


def fill(history, made, reload_at=None):
    """Pushes a history; returns (buffer, the rows stored, all episodes)."""
    envs, _, rollouts = history
    world, pushed = World(envs), []
    for k, rollout in enumerate(rollouts):
        rows = world.rows(rollout)
        if not len(rows["age"]):
            continue
        made.push(rows)
        pushed += rows["number"].astype(int).tolist()
        if k == reload_at:
            other = buffer(made.capacity, made._length, burn_in=made._burn_in, whole=made._whole, seed=9)
            other.load_state_dict(made.state_dict())
            made = other
    return made, pushed[-made.capacity :], world.episodes


def numbers(batch):
    return batch.layout.read(batch.tables.host, "number", batch.index).astype(int)


def sequences(batch):
    """For each sequence of all minibatches its numbers, and what is filled and learned, in the order of time."""
    columns = (numbers(batch), batch.filled, batch.learned)
    return zip(*(column.transpose(0, 2, 1).reshape(-1, column.shape[1]) for column in columns), strict=True)


class InTurn:
    """Draws every number once, where as many are drawn as there are."""

    def integers(self, low, high, size):
        self.count = high - low
        return np.resize(np.arange(low, high), size)


def all_windows(made):
    """Each window that can be drawn, once."""
    made._rng = InTurn()
    made.sample(1, 1)
    return made.sample(1, made._rng.count)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(history=histories(), length=st.integers(1, 5), burn_in=st.integers(0, 4))
def test_a_window_is_burn_in_and_rows_of_one_episode_in_order(history, length, burn_in):
    made, stored, episodes = fill(history, buffer(history[1], length, burn_in=burn_in))
    if not stored:
        return
    batch = all_windows(made)
    expected = []
    for kept in ([number for number in e["rows"] if number in stored] for e in episodes):
        for start in range(1 - length, len(kept)) if kept else ():
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


@settings(deadline=None, derandomize=True, max_examples=150)
@given(history=histories(), length=st.integers(1, 8))
def test_each_stored_row_is_drawn_equally_often(history, length):
    made, stored, _ = fill(history, buffer(history[1], length))
    if not stored:
        return
    batch = all_windows(made)
    drawn, times = np.unique(numbers(batch)[batch.learned], return_counts=True)
    assert drawn.tolist() == sorted(stored)
    assert set(times.tolist()) == {length}


@settings(deadline=None, derandomize=True, max_examples=150)
@given(history=histories())
def test_whole_episodes_are_those_that_ended_and_are_stored_from_their_first_row_on(history):
    made, stored, episodes = fill(history, buffer(history[1], 12, whole=True))
    whole = [e["rows"] for e in episodes if e["ended"] and set(e["rows"]) <= set(stored) and len(e["rows"]) <= 12]
    assert made.num_episodes == len(whole)
    if not whole:
        with pytest.raises(ConfigError, match="no whole episode is stored yet"):
            made.sample(1, 1)
        return
    batch = made.sample(4, 16)
    drawn = {tuple(row[filled]) for row, filled, _ in sequences(batch)}
    assert drawn <= {tuple(rows) for rows in whole}
    assert np.array_equal(batch.learned, batch.filled)
    if len(whole) <= 4:
        assert len(drawn) == len(whole)


@settings(deadline=None, derandomize=True, max_examples=80)
@given(history=histories(), reload_at=st.integers(0, 7), whole=st.booleans())
def test_a_buffer_that_was_saved_and_loaded_draws_as_if_nothing_had_happened(history, reload_at, whole):
    options = {"length": 12, "whole": True} if whole else {"length": 3, "burn_in": 2}
    made, stored, _ = fill(history, buffer(history[1], **options))
    other, _, _ = fill(history, buffer(history[1], **options), reload_at)
    if not stored or (whole and not made.num_episodes):
        return
    mine, theirs = made.sample(2, 8), other.sample(2, 8)
    assert np.array_equal(mine.index, theirs.index)
    assert np.array_equal(mine.filled, theirs.filled)
    assert np.array_equal(mine.learned, theirs.learned)


def test_a_window_by_hand():
    """Two environments, mixed; the second one resets in the third row, which is left out."""
    world, made = World(2), buffer(length=2, burn_in=1)
    made.push(world.rows([["go", "go"], ["go", "end"], ["go", "reset"], ["go", "go"]]))
    made.push(world.rows([["end", "go"]]))
    batch = made.sample(1, 200)
    windows = {(*row.tolist(), *filled.tolist(), *learned.tolist()) for row, filled, learned in sequences(batch)}
    t, f = True, False
    # Those that begin before the first row.
    early = {(n, n, n, f, t, f, f, t, f) for n in (1000, 2000, 3000)}
    assert windows == early | {
        (1000, 1000, 1001, f, t, t, f, t, t),
        (1000, 1001, 1002, t, t, t, f, t, t),
        (1001, 1002, 1003, t, t, t, f, t, t),
        (1002, 1003, 1004, t, t, t, f, t, t),
        (1003, 1004, 1004, t, t, f, f, t, f),
        (2000, 2000, 2001, f, t, t, f, t, t),
        (2000, 2001, 2001, t, t, f, f, t, f),
        (3000, 3000, 3001, f, t, t, f, t, t),
        (3000, 3001, 3001, t, t, f, f, t, f),
    }


def test_a_recorded_episode_is_pushed_as_a_whole():
    made = buffer(length=4, whole=True)
    made.push_episode({"number": np.arange(3, dtype=np.float32), "age": np.arange(3)})
    made.push_episode({"number": np.arange(7, 9, dtype=np.float32), "age": np.arange(2)})
    assert made.num_episodes == 2
    assert {tuple(row) for row, _, _ in sequences(made.sample(1, 50))} == {(0, 1, 2, 2), (7, 8, 8, 8)}


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="both together at most the capacity of 5 rows, got length=4, burn_in=2"):
        buffer(5, length=4, burn_in=2)
    with pytest.raises(ConfigError, match="whole episodes begin with an empty memory: set burn_in=0, not 2"):
        buffer(whole=True, burn_in=2)
    made = buffer(length=2, whole=True)
    with pytest.raises(ConfigError, match="no whole episode is stored yet"):
        made.sample(1, 1)
    with pytest.raises(ConfigError, match="sample from an empty buffer"):
        buffer().sample(1, 1)
    rows = World(1).rows([["go"], ["go"], ["end"]])
    made.push(rows)
    with pytest.raises(ConfigError, match="an episode has more than length=2 rows: raise it to the time limit"):
        made.sample(1, 1)
    with pytest.raises(ShapeError, match=r"expected one number per row, \(3,\), got sequence \(1,\)"):
        made.push({**rows, "sequence": np.zeros(1, int)})
    del rows["begun"]
    with pytest.raises(ShapeError, match=r"the rows lack begun, which link each row to its successor.*data_pusher"):
        made.push(rows)
