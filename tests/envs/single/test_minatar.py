"""MinAtar, where the extra is installed: planes, sticky actions, seeds, pictures."""

import gymnasium
import numpy as np
import pytest

from minding.envs import check_env

ours = pytest.importorskip("minding.envs.single.minatar", reason="needs the extra 'minatar'")


def test_it_steps_as_the_package_itself_does():
    theirs = ours.BaseEnv("breakout", use_minimal_action_set=True)
    env = gymnasium.make("MinAtar/Breakout-v1").unwrapped
    state, (seen, _) = theirs.reset(seed=3)[0], env.reset(seed=3)
    rng = np.random.default_rng(0)
    while True:
        np.testing.assert_array_equal(seen.transpose(1, 2, 0), 255 * state)
        action = rng.integers(3)
        state, *expected = theirs.step(action)[:3]
        seen, *found = env.step(action)[:3]
        assert found == expected
        if expected[1]:
            break


def test_pictures_are_bytes():
    env = gymnasium.make("MinAtar/Breakout-v1", render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    picture = env.render()
    assert (picture.dtype, picture.shape) == (np.uint8, (160, 160, 3))
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 2


@pytest.mark.slow
def test_it_is_fit_for_training_and_resumes_exactly():
    found = check_env({"env_id": "MinAtar/Breakout-v1"}, steps=600)
    assert [each for each in found if each.level != "ok" and "steps/s" not in each.text] == []
    assert "a running episode can be resumed exactly" in " ".join(each.text for each in found)
