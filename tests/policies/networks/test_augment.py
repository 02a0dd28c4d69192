"""Random shifts of images: against NumPy, and as a part of an update that repeats itself."""

import copy

import kit
import numpy as np
import pytest
from fakes import IMAGE, VECTOR, Batches, dict_of, discrete, rows_of, space_of

from minding.engine.data.observation import observation_leaves
from minding.engine.process.runtime import to_device
from minding.policies.networks.encoder import RandomShift

pytestmark = pytest.mark.eager

BOTH = dict_of(image=IMAGE, speed=VECTOR)
ROWS, STEPS = 8, 2


def np_shift(x, shift):
    _, _, height, width = x.shape
    made = np.empty_like(x)
    for b, i, j in np.ndindex(len(x), height, width):
        made[b, :, i, j] = x[b, :, np.clip(i + shift[b, 0], 0, height - 1), np.clip(j + shift[b, 1], 0, width - 1)]
    return made


def test_images_are_moved_and_repeat_their_edges():
    leaves, rng = observation_leaves(BOTH), np.random.default_rng(0)
    values = [rng.integers(0, 256, (6, *leaf.field.shape)).astype(leaf.field.dtype) for leaf in leaves]
    cell = RandomShift(leaves, 3)
    shift = cell.draw(rng, (6,))
    assert shift.min() == -3
    assert shift.max() == 3
    for first in (0, 2):
        found = cell(tuple(to_device(x) for x in values), to_device(shift), first)
        for leaf, x, made in zip(leaves, values, found, strict=True):
            expected = np_shift(x, shift[:, first:]) if leaf.is_image else x
            assert np.array_equal(made.asnumpy(), expected), leaf.path


@pytest.mark.parametrize(
    ("algorithm", "action"), [("dqn", discrete(3)), pytest.param("sac", space_of(2), marks=pytest.mark.slow)]
)
def test_learning_sees_moved_images_as_the_state_says(algorithm, action):
    settings = {"policy.model.cnn": [[4, 3, 2]], "policy.model.cnn_dim": 8}
    plain, moving = (
        kit.make_policy(algorithm, BOTH, action, **settings, **{"policy.model.augment": n}) for n in (0, 2)
    )
    moving.load_state_dict({**plain.state_dict(), "rng": moving.state_dict()["rng"]})
    index, rng = np.tile(np.arange(ROWS), (STEPS, 1)), np.random.default_rng(1)
    made = Batches(moving, STEPS * ROWS), Batches(plain, STEPS * ROWS)
    rows = rows_of(made[0].layout, STEPS * ROWS, rng, made[0].sizes)
    start, batch = copy.deepcopy(moving.state_dict()), made[0](rows, index)
    first = moving.learn_mode.forward(batch).metrics
    second = moving.learn_mode.forward(batch).metrics
    moving.load_state_dict(start)
    assert moving.learn_mode.forward(batch).metrics == first
    assert second != first
    # The same numbers, and the rows moved by them beforehand.
    moving.load_state_dict(start)
    plain.load_state_dict(start)
    moved = moving.root.augment.draw(np.random.default_rng(0), (STEPS, ROWS))
    moving.root.augment.draw = lambda rng, shape: moved
    found = moving.learn_mode.forward(batch).metrics
    both = {name: np.concatenate([x[:ROWS], x[:ROWS]]) for name, x in rows.items()}
    for name, place in (("obs.image", 0), ("next_obs.image", 2)):
        both[name] = np_shift(both[name], moved.reshape(-1, 4)[:, place:])
    expected = plain.learn_mode.forward(made[1](both, np.arange(STEPS * ROWS).reshape(STEPS, ROWS))).metrics
    assert found == expected
