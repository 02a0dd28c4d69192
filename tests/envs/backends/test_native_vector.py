"""Vector environments of every autoreset mode in one form."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from worlds import Both, Counter, Faulty, Nested

from minding.engine.data import obs_trees
from minding.engine.errors import EnvError
from minding.envs import VectorEnvManager, make_env_manager

MODES = list(AutoresetMode)


def vector_env(world, mode, num_envs=3, **kwargs):
    return SyncVectorEnv([lambda: world(**kwargs)] * num_envs, autoreset_mode=mode)


def transitions(manager, steps, action):
    """Valid transitions of each environment as plain tuples, and its episodes."""
    streams = [[] for _ in range(manager.num_envs)]
    ends = [[] for _ in range(manager.num_envs)]
    obs = manager.obs
    for _ in range(steps):
        step = manager.step(action)
        for env in range(manager.num_envs):
            if step.valid is None or step.valid[env]:
                before, after = (
                    [leaf.tolist() for _, leaf in obs_trees.leaves(obs_trees.index(tree, env))]
                    for tree in (obs, step.next_obs)
                )
                flags = (float(step.reward[env]), bool(step.terminated[env]), bool(step.truncated[env]))
                streams[env].append((before, after, *flags))
        for end in step.episodes:
            ends[end.env_id].append((end.episode_return, end.episode_length))
        obs = step.obs
    return streams, ends


@pytest.mark.parametrize("world", [Counter, Nested])
def test_all_autoreset_modes_give_the_same_transitions(world):
    action = np.zeros(3, np.int64) if world is Counter else np.ones((3, 2), np.int64)
    results = [transitions(VectorEnvManager(vector_env(world, mode), seed=4), 60, action) for mode in MODES]
    for env in range(3):
        streams = [streams[env] for streams, _ in results]
        shortest = min(map(len, streams))
        assert shortest > 40
        assert streams[0][:shortest] == streams[1][:shortest] == streams[2][:shortest]
        ends = [ends[env] for _, ends in results]
        shortest = min(map(len, ends))
        assert shortest >= 8
        assert ends[0][:shortest] == ends[1][:shortest] == ends[2][:shortest]


@pytest.mark.parametrize("mode", [None, *MODES])
def test_termination_wins_over_truncation_in_the_same_step(mode):
    manager = VectorEnvManager(vector_env(Both, mode)) if mode else make_env_manager({}, 3, 0, env_fn=Both)
    manager.reset()
    step = manager.step(np.zeros(3, np.int64))
    assert step.terminated.all()
    assert not step.truncated.any()
    assert len(step.episodes) == 3


@pytest.mark.parametrize("mode", MODES)
def test_faults_of_a_vector_environment_name_or_reset_it(mode):
    for kind, message in (("nan", "environment 0, step 3 of its episode: observation is"), ("raise", "motor stalled")):
        manager = VectorEnvManager(vector_env(Faulty, mode, kind=kind, at=3))
        manager.reset()
        manager.step(np.zeros(3, np.int64))
        manager.step(np.zeros(3, np.int64))
        with pytest.raises(EnvError, match=message):
            manager.step(np.zeros(3, np.int64))
    manager = VectorEnvManager(vector_env(Faulty, mode, kind="nan", at=3), {"on_error": "restart"})
    manager.reset()
    steps = [manager.step(np.zeros(3, np.int64)) for _ in range(5)]
    assert [step.valid is None for step in steps] == [True, True, False, True, True]
    assert not steps[2].valid.any()
    assert steps[4].obs[:, 1].tolist() == [2.0, 2.0, 2.0]
    assert manager.fault_count == 1


@pytest.mark.parametrize("mode", MODES)
def test_vector_faults_in_every_step_end_the_run(mode):
    manager = VectorEnvManager(vector_env(Faulty, mode, kind="raise", at=1), {"on_error": "restart"})
    with pytest.raises(EnvError, match=r"SyncVectorEnv \(3 environments\): .*failed in 10 steps in a row"):
        transitions(manager, 100, np.zeros(3, np.int64))
    assert manager.fault_count == 9


class FailsInReset(Counter):
    """Its second reset goes wrong."""

    resets = 0

    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        obs, info = super().reset(seed=seed)
        self.length = 2
        if self.resets > 1 and self.kind == "raise":
            raise OSError("no license")
        return obs * np.nan if self.resets > 1 else obs, info


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kind", "message"), [("raise", "OSError: no license"), ("nan", r"observation is \[nan nan\]")]
)
def test_a_fault_in_a_vector_reset_is_never_acted_on(mode, kind, message):
    manager = VectorEnvManager(vector_env(FailsInReset, mode, 1, kind=kind))
    action = np.zeros(1, np.int64)
    with pytest.raises(EnvError, match=message):
        transitions(manager, 4, action)
    with pytest.raises(EnvError, match=rf"failed in reset: .*{message}"):
        manager.reset()


def test_a_final_observation_that_is_not_finite_is_a_fault():
    class BadEnd(Counter):
        def observe(self):
            return super().observe() * (np.nan if self.steps == self.length else 1)

    manager = VectorEnvManager(vector_env(BadEnd, AutoresetMode.SAME_STEP, 1), {"on_error": "restart"})
    faults = [step.valid is not None for step in (manager.step(np.zeros(1, np.int64)) for _ in range(20))]
    assert faults.count(True) == manager.fault_count > 3


def test_a_stateless_vector_environment_resumes_at_a_boundary():
    manager = VectorEnvManager(vector_env(Counter, AutoresetMode.SAME_STEP))
    manager.reset()
    manager.step(np.zeros(3, np.int64))
    assert manager.resume_guarantee == "episode-boundary"
    manager.load_state_dict(manager.state_dict())
    assert manager.obs[:, 1].tolist() == [0.0, 0.0, 0.0]
