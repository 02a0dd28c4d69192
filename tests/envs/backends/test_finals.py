"""The forms in which a vector environment that resets in the same step tells its last observations."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from worlds import Counter, Nested, Permit, answering

from minding.engine.data import obs_trees
from minding.engine.errors import EnvError
from minding.envs import VectorEnvManager

N = 3


class Ordered(Counter):
    """Environment n begins at n and has episodes of n + 2 steps."""

    made = 0

    def __init__(self):
        super().__init__()
        self.number = Ordered.made % N
        Ordered.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start, self.length = float(self.number), self.number + 2
        return self.observe(), {}


class Paired(Ordered):
    """Observes a Tuple."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Tuple([self.observation_space, spaces.Discrete(9)])

    def observe(self):
        return super().observe(), self.steps


class Named(Ordered):
    """Observes a Dict."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Dict(at=self.observation_space, pair=spaces.Dict(n=spaces.Discrete(9)))

    def observe(self):
        return {"at": super().observe(), "pair": {"n": self.steps}}


def batched(rows, like):
    """Observations of some environments as a vector environment returns them; those that are None become zeros."""
    full = [like if row is None else row for row in rows]
    if isinstance(like, dict):
        return {key: batched([row[key] for row in full], like[key]) for key in like}
    if isinstance(like, tuple):
        return tuple(batched([row[i] for row in full], like[i]) for i in range(len(like)))
    return np.array(full)


def ended(rows):
    return [row for row in rows if row is not None]


FORMS = {
    "list": lambda rows: list(rows),
    "list of the ended": ended,
    "array of the ended": lambda rows: rows[[row is not None for row in rows]],
    "arrays": lambda rows: batched(rows, ended(rows)[0]),
    "arrays of the ended": lambda rows: batched(ended(rows), ended(rows)[0]),
    "by number": lambda rows: {n: row for n, row in enumerate(rows) if row is not None},
}


def vector(world, form, name="final_obs"):
    def change(answer):
        *rest, info = answer
        if "final_obs" in info:
            rows = info.pop("final_obs")
            info = {**info, name: form(rows)} if name else info
        return *rest, info

    return same_step(world, change)


def same_step(world, change, **settings):
    env = answering(SyncVectorEnv, change)([world] * N, autoreset_mode=AutoresetMode.SAME_STEP)
    return VectorEnvManager(env, settings)


def ends(manager, steps=6):
    """The leaves of the last observations, as they come."""
    manager.reset()
    found = []
    for _ in range(steps):
        step = manager.step(np.zeros(N, np.int64))
        over = step.terminated | step.truncated
        found += [leaf[over].tolist() for _, leaf in obs_trees.leaves(step.next_obs)]
    manager.close()
    return found


@pytest.mark.parametrize("name", ["final_obs", "final_observation"])
@pytest.mark.parametrize("world", [Ordered, Paired, Named])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_unambiguous_is_taken_by_either_name(world, form, name):
    found = ends(vector(world, FORMS[form], name))
    places = found[:: len(found) // 6]
    # (start, steps) of those of the environments, with episodes of 2, 3 and 4 steps, that end in steps 1 to 6.
    assert places == [[], [[0, 2]], [[1, 3]], [[0, 2], [2, 4]], [], [[0, 2], [1, 3]]]
    if world is not Ordered:
        assert found[1::2] == [[], [2], [3], [2, 4], [], [2, 3]]


@pytest.mark.parametrize("on_error", ["raise", "restart"])
def test_missing_final_observations_end_the_run(on_error):
    manager = vector(Nested, None, name=None)
    manager = VectorEnvManager(manager._source._env, {"on_error": on_error})
    manager.reset()
    action = np.zeros((N, 2), np.int64)
    for _ in range(2):
        manager.step(action)
    with pytest.raises(EnvError, match=r"is missing \(info holds '_final_obs', 'final_info'"):
        manager.step(action)


INFO_FORMS = {
    "arrays": lambda given: given,
    "dicts": lambda given: [{key: given[key][n] for key in given if key[0] != "_"} for n in range(N)],
    "dicts of the ended": lambda given: [
        {key: given[key][n] for key in given if key[0] != "_"} for n in np.flatnonzero(given["_spot"])
    ],
    "arrays of the ended": lambda given: {
        key: given[key][given["_spot"]] for key in ("action_mask", "spot", "success")
    },
    "with more": lambda given: {**given, "score": 3.0},
}


@pytest.mark.parametrize("form", INFO_FORMS)
def test_the_last_info_is_taken_in_every_form(form):
    def change(answer):
        if "final_info" in answer[-1]:
            answer[-1]["final_info"] = INFO_FORMS[form](answer[-1]["final_info"])
        return answer

    manager = same_step(Permit, change, info_keys=["action_mask", "success", "spot"])
    obs, count = manager.obs, 0
    for _ in range(12):
        step = manager.step(obs.action_mask.argmax(axis=1))
        assert np.array_equal(step.info["spot"], step.next_obs.observation)
        over = step.terminated | step.truncated
        assert np.array_equal(step.info["success"], over)
        assert step.next_obs.action_mask.sum(axis=1).tolist() == (~step.terminated).tolist()
        obs, count = step.obs, count + over.sum()
    assert count > 5


def test_a_last_info_that_is_missing_is_told():
    def change(answer):
        return *answer[:-1], {key: value for key, value in answer[-1].items() if key != "final_info"}

    manager = same_step(Permit, change, info_keys=["action_mask", "spot"])

    def play():
        for _ in range(7):
            manager.step(manager.obs.action_mask.argmax(axis=1))

    manager.reset()
    with pytest.raises(EnvError, match=r"info\['final_info'\] is missing.*the info of the last step of each that"):
        play()
