"""Which settings changed, and which make another run."""

import pytest

from minding.configs import compile_run
from minding.engine import Config
from minding.engine.checkpoint import save_checkpoint
from minding.engine.config.identity import (
    POLICY,
    RUN,
    changes,
    collectors_of,
    describe_changes,
    describe_differences,
    differences,
    identity,
)

SAVED = {"seed": 0, "run": {"out_dir": "a", "max_env_step": 10}, "policy": {"type": "ppo", "model": {"hidden": [8]}}}


def test_differences_are_found_by_path_but_not_those_of_places():
    now = Config(seed=1, run=dict(out_dir="b", max_env_step=20, new=3), policy=dict(type="ppo"))
    found = changes(SAVED, now)
    assert describe_changes(found) == (
        "seed 0 -> 1, run.max_env_step 10 -> 20, run.new None -> 3, policy.model {'hidden': [8]} -> None"
    )
    assert changes({"a": [1, 2]}, {"a": (1, 2)}) == []


@pytest.mark.parametrize(
    ("algorithm", "missing"),
    [
        ("dqn", {"policy.other.reward"}),
        ("ppo", {"policy.other.buffer_size", "policy.other.reward"}),
        ("own_parts:Recorded", {"policy.other.buffer_size"}),
    ],
)
def test_every_setting_of_an_identity_is_one_that_there_is(algorithm, missing):
    env_id = "Pendulum-v1" if algorithm.startswith("own_parts") else "CartPole-v1"
    user = Config(env={"env_id": env_id}, policy={"type": algorithm, "collect": {"n_sample": 32}})
    found = identity(compile_run(user))
    assert found.keys() == RUN.keys()
    assert {path for path, value in found.items() if value is None} == missing


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ({"policy.model.activation": "relu"}, "policy.model.activation"),
        ({"policy.model.normalize_obs": "false"}, "policy.model.normalize_obs"),
        ({"env.normalize_reward": "true"}, "env.normalize_reward"),
        ({"env.collector_env_num": "1"}, "env.collector_env_num"),
        ({"seed": "3"}, "seed"),
    ],
)
def test_a_run_is_another_one_with_another(tiny_config, override, path):
    settings = {**override}
    other = tiny_config("ppo", seed=int(settings.pop("seed", 0)), **settings)
    saved = identity(tiny_config("ppo"))
    assert [change.path for change in differences(saved, other)] == [path]
    acting = path.startswith("policy.")
    assert bool(differences(saved, other, POLICY)) is acting


def test_parameters_belong_to_what_an_action_does(tiny_config):
    saved = identity(tiny_config("sac"))
    other = tiny_config("sac", env={"low": -2.0, "high": 2.0})
    for paths in (RUN, POLICY):
        found = [change.path for change in differences(saved, other, paths)]
        assert found == ["env.spec.env_action.low", "env.spec.env_action.high"]


def test_a_known_division_among_collectors_is_part_of_a_run(tiny_config):
    def lanes(**settings):
        return tiny_config("ppo", **{f"lanes.{name}": str(value) for name, value in settings.items()})

    sync, two = lanes(), lanes(async_mode=True, collectors=2, shards=2)
    assert identity(sync)["lanes.collectors"] == identity(lanes(collectors=2))["lanes.collectors"] == 1
    found = differences(identity(sync), two)
    assert describe_differences(found) == "lanes.collectors is 1 there and 2 here; lanes.shards is 1 there and 2 here"
    assert differences(identity(two), two, POLICY) == []
    # Left open, it is what the run had; how workers run does not matter.
    by_cores = lanes(async_mode=True, shards=2, transport="threads", max_staleness=3)
    assert identity(by_cores)["lanes.collectors"] is None
    assert differences(identity(two), by_cores) == differences(identity(by_cores), two) == []


def test_a_run_that_is_resumed_has_the_collectors_that_it_had(tmp_path):
    saved = tmp_path / "run" / "ckpt"
    assert collectors_of("latest", saved) is None
    for number, count in ((1, 2), (2, 6)):
        save_checkpoint(saved / f"iter_{number}", {"policy": {}}, {"identity": {"lanes.collectors": count}})
    assert collectors_of("latest", saved) == 6
    assert collectors_of(tmp_path / "run", tmp_path / "elsewhere") == 6
    assert collectors_of(saved / "iter_1", tmp_path / "elsewhere") == 2
