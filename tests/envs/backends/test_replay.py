"""The log of actions."""

import numpy as np

from minding.envs.backends.source import ActionLog


def filled(log, steps):
    for step in range(steps):
        log.append(np.array([step, -step]))


def test_it_returns_the_actions_since_each_environments_begin():
    log = ActionLog((2,), np.int64)
    filled(log, 5)
    log.begin(1)
    log.append(np.array([9, 8]))
    assert log.actions(0).tolist() == [0, 1, 2, 3, 4, 9]
    assert log.actions(1).tolist() == [8]


def test_it_grows_and_drops_what_no_episode_needs():
    log = ActionLog((2,), np.int64)
    filled(log, 1300)
    assert log.actions(0).tolist() == list(range(1300))
    log.begin(slice(None))
    filled(log, 5000)
    log.begin(0)
    filled(log, 3)
    assert log.actions(0).tolist() == [0, 1, 2]
    assert log.actions(1).tolist() == [-s for s in range(5000)] + [0, -1, -2]


def test_the_longest_episodes_are_forgotten_at_the_limit():
    log = ActionLog((2,), np.int64, max_steps=100)
    filled(log, 90)
    log.begin(1)
    filled(log, 30)
    assert log.actions(0) is None
    assert log.actions(1).tolist() == [-s for s in range(30)]
    filled(log, 100_000)
    assert log._rows.nbytes == 1600
