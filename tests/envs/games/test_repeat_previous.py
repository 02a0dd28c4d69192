"""RepeatPrevious: the game, what can be reached in it with and without memory, and its vector version."""

import gymnasium
import numpy as np
import pytest

from minding.envs import make_env_manager

DELAY, SYMBOLS, ANSWERS = 4, 4, 32
STEPS = DELAY + ANSWERS


@pytest.fixture
def env():
    return gymnasium.make("minding/RepeatPrevious-v0")


def play(env, policy, seed):
    """Return and length of an episode; `policy` takes the symbols so far."""
    seen, total, over = [int(env.reset(seed=seed)[0].argmax())], 0.0, False
    while not over:
        obs, reward, terminated, truncated, _ = env.step(policy(seen))
        total, over = total + reward, terminated or truncated
        assert obs.tolist() == [float(k == obs.argmax()) for k in range(SYMBOLS)]
        seen.append(int(obs.argmax()))
    return total, len(seen) - 1


def test_who_names_the_symbol_of_four_steps_before_earns_1(env):
    for seed in range(5):
        total, steps = play(env, lambda seen: seen[max(0, len(seen) - 1 - DELAY)], seed)
        assert (total, steps) == (pytest.approx(1.0), STEPS)
        # One step too early, or too late, is as good as guessing.
        for wrong in (DELAY - 1, DELAY + 1):
            assert play(env, lambda seen, k=wrong: seen[max(0, len(seen) - 1 - k)], seed)[0] < 0.7


def test_the_vector_version_plays_the_same_game_and_resumes_exactly():
    cfg = {"env_id": "minding/RepeatPrevious-v0", "backend": "native"}
    manager, other = make_env_manager(cfg, 3, 0), make_env_manager(cfg, 3, 1)
    rng, shown, ends = np.random.default_rng(0), [manager.obs.argmax(axis=1)], 0
    for t in range(3 * STEPS):
        if t == STEPS + 7:
            other.load_state_dict(manager.state_dict())
            assert manager.resume_guarantee == "exact"
        action = rng.integers(SYMBOLS, size=3)
        step, age = manager.step(action), t % STEPS
        right = (action == shown[-1 - DELAY]) if age >= DELAY else np.zeros(3, bool)
        assert np.array_equal(step.reward, (right / ANSWERS).astype(np.float32))
        assert step.terminated.all() == step.terminated.any() == (age == STEPS - 1)
        ends += step.terminated.sum()
        shown = [step.obs.argmax(axis=1)] if step.terminated.any() else [*shown, step.obs.argmax(axis=1)]
        if t >= STEPS + 7:
            assert np.array_equal(other.step(action).obs, step.obs)
    assert ends == 9
    manager.close()
    other.close()


@pytest.mark.parametrize("wrong", [{"delay": 0}, {"symbols": 1}, {"answers": 0}, {"delay": 10**9}, {"symbols": 10**9}])
def test_a_game_without_anything_to_remember_is_refused(wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"{name}={value}: expected \d to \d"):
        gymnasium.make("minding/RepeatPrevious-v0", **wrong)
