"""Held-out episodes: whole ones, chosen by the seed, and out of everything that is learned from."""

import numpy as np
import pytest
from fakes import space_of
from hypothesis import given
from hypothesis import strategies as st
from recordings import dataset, log

from minding.engine.data.holdout import first_steps, hold_out
from minding.engine.errors import DataError


def numbered(lengths):
    """Episodes whose observations say where they are: 100 times the episode plus the step; the last is cut."""
    episodes = []
    for number, length in enumerate(lengths):
        obs = 100.0 * number + np.arange(length + 1, dtype=np.float32)[:, None]
        reward, ended = np.full(length, float(number)), number < len(lengths) - 1
        episodes.append(log(length, obs[:-1] / 10000, obs=obs, reward=reward, terminated=ended))
    return dataset(episodes, space_of(1, low=0.0, high=9999.0))


@given(
    lengths=st.lists(st.integers(1, 6), min_size=2, max_size=12), share=st.floats(0.01, 0.9), seed=st.integers(0, 99)
)
def test_every_row_is_in_one_part_as_it_is_in_the_whole(lengths, share, seed):
    data = numbered(lengths)
    if max(1, round(share * len(lengths))) == len(lengths):
        return
    learned, held = hold_out(data, share, seed)
    whole = data.rows(data.names, np.arange(len(data)))
    by_obs = {float(obs[0]): row for row, obs in enumerate(whole["obs"])}
    seen = []
    for part in (learned, held):
        rows = part.rows(part.names, np.arange(len(part)))
        places = [by_obs[float(obs[0])] for obs in rows["obs"]]
        seen += places
        for name, values in rows.items():
            if name == "next_action":
                # Of the last step of an episode it is any.
                known = rows["next_known"] == 1
                assert np.array_equal(values[known], whole[name][places][known])
            else:
                assert np.array_equal(values, whole[name][places])
        assert len(part.end) == len(part.episodes) == len({place // 100 for place in rows["obs"][:, 0]})
        assert (rows["obs"][first_steps(part), 0] % 100 == 0).all()
        expected = [number * lengths[number] for number in part.episodes if number < len(lengths) - 1]
        assert part.returns().tolist() == expected
    assert sorted(seen) == list(range(len(data)))


def test_the_seed_chooses_and_a_larger_share_holds_more():
    data = numbered([3] * 20)
    few, many = (set(hold_out(data, share, 1)[1].episodes.tolist()) for share in (0.1, 0.4))
    assert (len(few), len(many), few < many) == (2, 8, True)
    assert set(hold_out(data, 0.1, 1)[1].episodes.tolist()) == few
    assert set(hold_out(data, 0.1, 2)[1].episodes.tolist()) != few
    data = numbered([3, 3])
    assert hold_out(data, 0.0, 0) == (data, None)
    with pytest.raises(DataError, match=r"holdout=0.1 of 1 recorded episode leaves none to learn from"):
        hold_out(numbered([3]), 0.1, 0)
