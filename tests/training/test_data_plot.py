"""The picture of recorded data: what is drawn of each kind, and by which ticks."""

import numpy as np
import pytest
from fakes import space_of
from recordings import choices, dataset, log

from minding.training.data_plot import _shares, draw_dataset, plot_dataset

STEPS = 30


def data_of(action, env_action, obs=None, observation=None, episodes=4, ended=True):
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(STEPS + 1, 3)).astype(np.float32) if obs is None else obs
    return dataset([log(STEPS, action, obs=obs, terminated=ended)] * episodes, observation or space_of(3), env_action)


def panels(data):
    """The panels by the label of their horizontal axis, after drawing; and the figure."""
    figure = draw_dataset(data)
    figure.canvas.draw()
    return figure, figure.axes


def ticks(axes, which="x"):
    """The texts at the visible ticks, as numbers."""
    axis = getattr(axes, f"{which}axis")
    low, high = sorted(axis.get_view_interval())
    return [float(text.get_text().replace(",", "").replace("\N{MINUS SIGN}", "-"))
            for text in axis.get_ticklabels() if low <= text.get_position()[which == "y"] <= high]  # fmt: skip


def columns(axes):
    return sum(patch.get_height() for patch in axes.patches)


def test_whole_numbers_have_whole_ticks_and_every_step_is_drawn():
    figure, (returns, lengths, actions, coverage, scale) = panels(data_of(np.arange(STEPS) % 3, choices(3)))
    for axes in (returns, lengths, actions):
        for which in "xy":
            assert all(tick == int(tick) for tick in ticks(axes, which)), (axes.get_xlabel(), which)
    assert ticks(lengths) == ticks(returns) == [STEPS]
    assert (ticks(actions), columns(actions)) == ([0, 1, 2], 4 * STEPS)
    assert columns(lengths) == 4
    assert scale.get_ylabel() == "steps per cell"
    assert figure.get_suptitle() == "Toy-v0: 120 steps of 4 episodes"
    assert coverage.get_title() == "coverage"


def test_an_action_of_very_many_is_visible_and_counted():
    _, (_, _, actions, *_) = panels(data_of(np.arange(STEPS) * 3000, choices(95_732)))
    assert actions.get_xlabel() == "action: 30 of 95,732 were recorded"
    # A column that is narrower than a hundredth of the panel cannot be seen.
    assert len(actions.patches) <= 42
    assert np.ptp(actions.get_xlim()) / 42 >= 2000


@pytest.mark.parametrize("width", [1, 4])
def test_actions_are_columns_or_a_table_by_count(width):
    action = np.linspace(-1, 1, STEPS * width, dtype=np.float32).reshape(STEPS, width)
    _, (_, _, actions, *others) = panels(data_of(action, {**space_of(width), "rescaled": True}))
    assert bool(actions.images) == (width > 1)
    # The colors of actions and of coverage have a scale each.
    assert sum(each.get_ylabel().startswith("steps") for each in others) == 1 + (width > 1)
    if width > 1:
        assert np.nansum(actions.images[0].get_array()) == 4 * STEPS * width


def test_components_are_shares_of_their_ranges():
    action = np.linspace([0.0, -1.0, 0.0], [10.0, 1.0, 5000.0], 8)
    space = {"low": [0.0, -1.0, 0.0], "high": [10.0, 1.0, 5000.0]}
    shares = np.linspace([0.0] * 3, [1.0] * 3, 8)
    # Without limits the recorded numbers tell the range.
    for limits in (space, {"low": -np.inf, "high": np.inf}):
        assert _shares(action, limits) == pytest.approx(shares)


def test_choices_of_several_components_are_whole():
    width = 9
    space = {"kind": "multi_discrete", "nvec": [4] * width, "start": [0] * width, "shape": [width], "dtype": "int64"}
    action = np.stack([np.arange(STEPS) % (1 + at % 4) for at in range(width)], axis=1)
    _, (_, _, actions, *_) = panels(data_of(action, space))
    table = actions.images[0].get_array()
    assert table.shape == (9, 4)
    assert np.ma.filled(table, 0).sum(axis=1).tolist() == [4 * STEPS] * 9
    assert actions.images[0].get_extent() == [-0.5, 3.5, -0.5, 8.5]


@pytest.mark.parametrize("form", [(3, 12, 10), (12, 10, 3), (4, 12, 10), (12, 10, 1)])
def test_images_are_shown_from_the_first_step_to_the_last(form):
    obs = np.broadcast_to(np.arange(STEPS + 1).reshape(-1, *[1] * len(form)), (STEPS + 1, *form)).astype(np.uint8) * 8
    observation = {**space_of(1), "shape": list(form), "dtype": "uint8", "low": 0, "high": 255}
    figure, axes = panels(data_of(np.zeros(STEPS, np.int64), choices(2), obs, observation, episodes=1))
    assert len(axes) == 4
    (shown,) = axes[3].images
    # Six of 12 x 10 pixels, two lines of three, with a line of pixels between.
    assert shown.get_array().shape == (26, 33, 3)
    assert shown.get_array()[1, 1].tolist() == [0.0] * 3
    assert shown.get_array()[-1, -1].tolist() == pytest.approx([29 * 8 / 255] * 3)
    assert axes[3].get_xlabel() == "at the steps 0, 5, 11, 17, 23, 29"
    assert "coverage" not in [each.get_title() for each in figure.axes]


def test_images_beside_vectors_have_a_line_of_their_own(tmp_path):
    parts = {"speed": space_of(2), "pixels": {**space_of(1), "shape": [4, 12, 10], "dtype": "uint8", "high": 255}}
    obs = {"speed": np.zeros((STEPS + 1, 2), np.float32), "pixels": np.zeros((STEPS + 1, 4, 12, 10), np.uint8)}
    observation = {"kind": "dict", "spaces": parts}
    data = data_of(np.zeros(STEPS, np.int64), choices(2), obs, observation, ended=False)
    _, axes = panels(data)
    assert [each.get_title() for each in axes].count("observation pixels") == 1
    assert [each.get_title() for each in axes].count("coverage") == 1
    assert axes[0].texts[0].get_text() == "no complete episode"
    plot_dataset(data, tmp_path / "data.png")
    assert (tmp_path / "data.png").stat().st_size > 10_000


def test_a_single_number_of_an_observation_is_a_histogram():
    obs = np.arange(STEPS + 1, dtype=np.float32)[:, None]
    _, axes = panels(data_of(np.zeros(STEPS, np.int64), choices(2), obs, space_of(1)))
    assert columns(axes[3]) == 4 * STEPS
