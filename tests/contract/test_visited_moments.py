"""Moments of observations where rows are replayed: each visited row counts once, when it is stored."""

import numpy as np
import pytest
from of_algorithms import SMALL, recorded, short_run

from minding import training
from minding.configs import compile_run
from minding.engine import Config
from minding.engine.buffers import BaseBuffer
from minding.engine.data.statistics import RunningMoments
from minding.engine.run.run_dir import RunDir
from minding.training import session

pytestmark = pytest.mark.eager

NORMALIZED = ("policy.model.normalize_obs=true",)
THREADS = ("lanes.async_mode=true", "lanes.transport=threads", "lanes.max_staleness=1")
CASES = {
    "single rows": ("sac", "Pendulum-v1", ()),
    "n-step returns from a table": ("dqn", "CartPole-v1", ("policy.learn.nstep=2", "policy.other.replay=table")),
    "sequences": ("r2d2", "CartPole-v1", ()),
    "episodes of a team": ("qmix", "agent_worlds:Parts", ()),
    "beside recorded data": ("sac", "Pendulum-v1", ("chain=prior_data", "data")),
    "lanes with shards": ("td3", "Pendulum-v1", (*THREADS, "lanes.shards=2", "lanes.collectors=4")),
}


@pytest.mark.parametrize("case", CASES)
def test_each_stored_row_counts_once_with_those_of_the_warm_up(case, tmp_path, monkeypatch):
    algorithm, env_id, extra = CASES[case]
    extra = [f"policy.other.data={recorded(env_id)}" if key == "data" else key for key in extra]
    keys = [*SMALL, *short_run(algorithm), *NORMALIZED, *extra, f"run.out_dir={tmp_path}"]
    cfg = compile_run(Config(env={"env_id": env_id}, policy={"type": algorithm}), keys)
    stored, built, at_first = [], [], []
    push, build = BaseBuffer.push, training.build

    def pushed(buffer, rows):
        stored.append({name: np.array(values) for name, values in rows.items()})
        push(buffer, rows)

    def build_watched(*args):
        policy = build(*args)
        built.append(policy)
        update = policy._update

        def learn(*given):
            at_first.append(sum(len(rows["reward"]) for rows in stored))
            if len(at_first) == 1:
                check(policy, stored)
            return update(*given)

        policy._update = learn
        return policy

    monkeypatch.setattr(BaseBuffer, "push", pushed)
    monkeypatch.setattr(session, "build", build_watched)
    training.train(cfg, RunDir.create(cfg), progress=False)
    assert 48 <= at_first[0] < at_first[-1]
    check(built[0], stored)


def check(policy, stored):
    """The moments, and what acting and learning see of them, are those of all rows in float64."""
    assert policy.normalizers
    for field, normalizer in policy.normalizers.values():
        rows = np.concatenate([each[field] for each in stored]).astype(np.float64)
        if "obs.alive" in stored[0] and field != "obs.state":
            rows = rows[np.concatenate([each["obs.alive"] for each in stored])]
        rows = rows.reshape(len(rows), -1)
        assert normalizer.moments.count == len(rows)
        center, scale = RunningMoments.of(rows).zero_keeping()
        np.testing.assert_allclose(normalizer.center.asnumpy(), center, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(normalizer.scale.asnumpy(), scale, rtol=1e-5)
