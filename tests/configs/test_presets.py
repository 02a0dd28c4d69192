"""Presets and the ways to name a configuration."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from easydict import EasyDict
from fakes import dict_of, discrete, needs_kernels

from minding.configs import PRESETS, compile_run, load_preset, load_user_config
from minding.configs.chains import get_chain
from minding.configs.names import expectation
from minding.engine import Config
from minding.engine.config.compiler import save_config, schema_defaults
from minding.engine.data.agent_axis import has_identity
from minding.engine.data.rollout import uneven
from minding.engine.errors import ConfigError, MissingExtraError, SpaceError
from minding.engine.process import runtime
from minding.envs import config_schema
from minding.policies import ALGORITHMS, get_algorithm, kernels
from minding.policies.core import prepare_process


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_its_name_and_an_expectation(name):
    cfg = load_preset(name)
    assert cfg.exp_name == name
    # What follows the algorithm tells presets of the same two apart.
    # DQN, TD3+BC, SAC and REDQ with switches go by the names of their papers.
    papers = {"_dueling": "", "_munchausen": "", "_rebrac": "_td3_bc", "_rlpd": "_sac", "_droq": "_redq"}
    for own, algorithm in papers.items():
        name = name.replace(own, algorithm)
    where, _, rest = name.partition(f"_{cfg.policy.type}")
    assert rest == "" or rest.startswith("_")
    assert re.sub(r"[_-]", "", where) in re.sub(r"[_/-]", "", cfg.env.env_id.lower())
    mean = re.search(r"evaluation mean of at least (-?[\d.]+\d|-?\d)", expectation(cfg.exp_name))
    assert cfg.run.get("target") == (float(mean[1]) if mean else None)
    # It says only what differs from the defaults.
    algorithm = get_algorithm(cfg.policy.pop("type"))
    env_defaults = {**schema_defaults(config_schema()), **algorithm.env}
    assert repeated(cfg.policy, schema_defaults(algorithm.config_schema())) == repeated(cfg.env, env_defaults) == []


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_compiles(name, monkeypatch, tmp_path):
    # MuJoCo writes a log into the current folder.
    monkeypatch.chdir(tmp_path)
    try:
        cfg = compile_run(load_preset(name))
    except MissingExtraError as error:
        pytest.skip(str(error))
    assert cfg.env.spec.observation
    assert cfg.chain == load_preset(name).get("chain", get_algorithm(cfg.policy.type).chain)
    if "chain" in load_preset(name) and not cfg.policy.other.get("data"):
        get_chain(cfg.chain).check(cfg)


def repeated(user, defaults, prefix=""):
    """Paths at which a preset says the default again."""
    paths = []
    for key, value in user.items():
        if isinstance(value, dict) and key not in ("env_kwargs", "evaluator_kwargs"):
            paths += repeated(value, defaults[key], f"{prefix}{key}.")
        elif value == defaults[key]:
            paths.append(prefix + key)
    return paths


def compile_cartpole(*overrides, algorithm="ppo"):
    return compile_run(Config(env={"env_id": "CartPole-v1"}, policy={"type": algorithm}), overrides)


@pytest.mark.parametrize(
    ("name", "count", "fitting"), [("env.collector_env_num", 7, 1120), ("policy.learn.n_minibatch", 10, 1040)]
)
def test_a_rollout_that_does_not_divide_suggests_one_that_does(name, count, fitting):
    with pytest.raises(ConfigError, match=f"does not divide by {name}={count}: use .*n_sample={fitting}"):
        compile_cartpole(f"{name}={count}")


@pytest.mark.parametrize("envs", [1, 2, 3, 4, 6, 7])
@pytest.mark.parametrize("minibatches", [1, 2, 3, 5, 8])
def test_the_number_of_steps_that_the_message_names_is_accepted(envs, minibatches):
    for n_sample in (1, 7, 27, 28, 100):
        parts = {"env.collector_env_num": envs, "policy.learn.n_minibatch": minibatches}
        for name in parts:
            for problem in uneven(n_sample, name, parts):
                fitting = int(problem.rpartition("=")[2])
                assert n_sample <= fitting < n_sample + envs * minibatches
                assert not any(uneven(fitting, each, parts) for each in parts)


BUFFER, LIMITER, TABLE = "policy.other.buffer_size", "policy.other.table.limiter", "policy.other.replay=table"
TIMES = [TABLE, "policy.other.table.max_times_sampled=1", "policy.learn.batch_size=2000"]
UPDATES = "policy.learn.update_per_collect={}"


@pytest.mark.parametrize(
    ("algorithm", "overrides", "both"),
    [
        ("dqn", ["run.max_env_step=900"], ["policy.learn.warmup=1000", "run.max_env_step, 900"]),
        ("dqn", ["run.max_step=10"], ["policy.learn.warmup=1000", "run.max_step x policy.collect.n_sample, 80"]),
        ("dqn", [f"{BUFFER}=900"], ["policy.learn.warmup=1000", f"{BUFFER}=900"]),
        ("dqn", [f"{BUFFER}=100", "policy.learn.warmup=1"], ["policy.learn.batch_size=128", f"{BUFFER}=100"]),
        ("dqn", ["policy.learn.updates_per_step=1e-5"], ["policy.learn.updates_per_step=1e-05 is never reached"]),
        ("sac", ["policy.collect.random_steps=5000", "run.max_env_step=5000"], ["policy.collect.random_steps=5000"]),
        ("c51", ["policy.model.v_max=-10"], ["policy.model.v_min=-10.0", "policy.model.v_max=-10.0"]),
        ("c51", ["policy.model.v_max=.inf"], ["policy.model.v_min=-10.0", "policy.model.v_max=inf"]),
        ("ppo", ["run.stop_value=1", "run.max_env_step=5000"], ["run.stop_value=1.0", "policy.eval.freq=10000"]),
        ("dqn", ["policy.other.eps.points=[[0, 1], [1, 0]]"], ["policy.other.eps.points=", "has no effect"]),
        ("dqn", ["policy.other.eps.kind=piecewise"], ["policy.other.eps.points=[]"]),
        ("ppo", ["policy.learn.anneal_kind=piecewise"], ["policy.learn.anneal_points=[]"]),
        ("dqn", [f"{LIMITER}=ratio"], [f"{LIMITER}='ratio' has no effect without {TABLE}"]),
        ("dqn", [TABLE, "policy.other.table.samples_per_insert=4"], [f"has no effect without {LIMITER}=ratio"]),
        ("ppo", ["league.opponents=[a]"], ["league.opponents=['a'] has no effect without chain=league"]),
        ("ppo", ["league.size=3"], ["league.size=3 has no effect without chain=league"]),
        ("ppo", ["pool.last=3"], ["pool.last=3 has no effect without pool.freq"]),
        ("dqn", ["policy.other.data=x"], ["policy.other.data='x' has no effect without chain=offline or prior_data"]),
        ("dqn", ["policy.other.hindsight.k=8"], ["policy.other.hindsight.k=8 has no effect without chain=hindsight"]),
        ("ppo", ["env.team_reward=true"], ["env.team_reward=true"]),
        ("ppo", ["env.global_state=true"], ["env.global_state=true"]),
        ("ppo", ["env.episodic_life=true"], ["env.episodic_life=true", "CartPole"]),
        ("ppo", ["env.wrappers=[episodic_life]"], ["episodic_life", "info['lives']"]),
        ("dqn", [TABLE, f"{LIMITER}=min_size", f"{LIMITER}_rows=1000000"], [f"{LIMITER}_rows=1000000", BUFFER]),
        ("dqn", [TABLE, f"{LIMITER}=ratio", f"{LIMITER}_error=1"], [f"{LIMITER}_error=1"]),
        # 2 minibatches of 2,000 need 4,000 of 3,000 samples, 3 of them 6,000 of 5,000.
        ("dqn", [*TIMES, UPDATES.format(2), "run.max_env_step=3000"], [TIMES[1], "3000 samples", "draws 4000"]),
        ("dqn", [*TIMES, UPDATES.format(3), f"{BUFFER}=5000"], [TIMES[1], BUFFER, "draws 6000"]),
    ],
)
def test_a_run_that_would_do_nothing_is_refused(algorithm, overrides, both):
    env_id = "Pendulum-v1" if algorithm == "sac" else "CartPole-v1"
    with pytest.raises(ConfigError) as error:
        compile_run(Config(env={"env_id": env_id}, policy={"type": algorithm}), overrides)
    assert all(key in str(error.value) for key in both), str(error.value)


def test_what_is_new_is_a_matter_of_one_agent():
    squad = Config(env={"env_id": "agent_worlds:Squad"}, policy={"type": "ppo"})
    compile_run(squad)
    with pytest.raises(ConfigError, match=r"rnd\.weight=0\.5 .*RND rewards one agent, and this"):
        compile_run(squad, ["policy.other.rnd.weight=0.5"])


def test_an_algorithm_of_the_unit_box_refuses_other_limits():
    pendulum = Config(env={"env_id": "Pendulum-v1"}, policy={"type": "sac"})
    with pytest.raises(SpaceError, match=r"acts in \[-1, 1\], .* \[-2\.0\] and \[2\.0\]: set env.rescale_action=true"):
        compile_run(pendulum, ["env.rescale_action=false"])
    with pytest.raises(SpaceError, match="give the action space finite bounds"):
        ALGORITHMS["sac"].check_actions({"kind": "box", "low": float("-inf"), "high": 1.0})


def test_two_loads_of_a_preset_share_nothing():
    load_preset("pong_ppo").policy.model.hidden.append(1)
    assert load_preset("pong_ppo").policy.model.hidden == [512]


SAVED = {"seed": 7, "env": {"env_id": "CartPole-v1"}, "policy": {"type": "ppo"}}


def test_a_saved_configuration_is_found_by_file_and_folder(tmp_path):
    save_config(SAVED, tmp_path / "config.yaml")
    assert load_user_config(tmp_path / "config.yaml") == SAVED
    assert load_user_config(tmp_path) == SAVED


def test_a_presets_name_comes_before_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("cartpole_ppo", "mine"):
        (tmp_path / name).mkdir()
        save_config(SAVED, tmp_path / name / "config.yaml")
    (tmp_path / "cartpole_dqn").mkdir()
    for name in ("cartpole_ppo", "cartpole_dqn"):
        assert load_user_config(name) == load_preset(name)
    for folder in ("./cartpole_ppo", "cartpole_ppo/", Path("cartpole_ppo"), "mine"):
        assert load_user_config(folder) == SAVED


def test_a_python_file_gives_its_main_config(tmp_path):
    path = tmp_path / "mine.py"
    settings = "main_config = dict(exp_name='mine', seed=7, policy=dict(type='ppo', learn=dict(gamma=0.5)))"
    path.write_text(f"from easydict import EasyDict\n{settings}\nmain_config = EasyDict(main_config)\n")
    cfg = load_user_config(path)
    assert (cfg.exp_name, cfg.seed, cfg.policy.learn.gamma) == ("mine", 7, 0.5)
    assert isinstance(cfg.policy.learn, EasyDict)
    assert vars(cfg) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no such file"),
        ("main_config = 1 / 0", "raised ZeroDivisionError"),
        ("import sys; sys.exit(3)", r"mine\.py' raised SystemExit: 3"),
        ("x = 1", "no main_config"),
        (
            "main_config = dict(policy=dict(learn=dict(gamma=lambda: 1)))",
            r"mine\.py': policy\.learn\.gamma: a function cannot be part of a configuration; use numbers",
        ),
        (
            "main_config = dict(use=[dict(call=open)])",
            r"mine\.py': use\[0\]\.call: a builtin_function_or_method cannot",
        ),
    ],
)
def test_a_python_file_without_a_configuration_is_a_clear_error(tmp_path, text, message):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_user_config(path)


def test_listing_presets_imports_none_of_them():
    code = "import sys, minding.configs; print([name for name in sys.modules if name.endswith('_ppo')])"
    out = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True, timeout=60
    )
    assert (out.stdout.strip(), out.stderr) == ("[]", "")


@pytest.mark.parametrize(
    ("name", "override", "compiled", "short"),
    [
        pytest.param("acrobot_dqn", "policy.learn.update_per_collect=1", True, True, marks=needs_kernels),
        ("acrobot_dqn", "policy.learn.update_per_collect=1", False, False),
        pytest.param("acrobot_dqn", "policy.learn.update_per_collect=2", True, False, marks=needs_kernels),
        pytest.param("pendulum_sac", "policy.learn.update_per_collect=1", True, True, marks=needs_kernels),
        pytest.param("cartpole_ppo", "policy.learn.n_epoch=1", True, False, marks=needs_kernels),
    ],
)
def test_only_one_gradient_step_with_kernels_is_a_short_update(name, override, compiled, short, monkeypatch):
    asked = []
    monkeypatch.setattr(kernels, "compiled", lambda: compiled)
    monkeypatch.setattr(runtime, "prepare", asked.append)
    prepare_process.prepare(compile_run(load_preset(name), [override]))
    assert [settings.short_graphs for settings in asked] == [short]


@pytest.mark.parametrize(
    ("user", "overrides", "target"),
    [
        ("cartpole_ppo", [], 475.0),
        ("cartpole_ppo", ["env.collector_env_num=4"], 475.0),
        ("cartpole_ppo", ["env.env_id=Acrobot-v1"], None),
        ("cartpole_ppo", ["env.env_kwargs={sutton_barto_reward: true}"], None),
        ("cartpole_ppo", ["env.env_id=Acrobot-v1", "run.target=-90"], -90.0),
        ({"policy": {"type": "ppo"}, "run": {"target": 9}}, ["env.env_id=Acrobot-v1"], 9.0),
    ],
)
def test_a_target_belongs_to_its_environment(user, overrides, target):
    assert compile_run(user, overrides).run.target == target


@pytest.mark.parametrize("algorithm", [name for name, entry in ALGORITHMS.items() if entry.agents != "one"])
def test_agents_that_share_a_network_see_their_numbers(algorithm):
    def seen(*overrides):
        user = Config(env={"env_id": "agent_worlds:Parts"}, policy={"type": algorithm})
        return compile_run(user, overrides).env.spec.observation

    assert has_identity(seen()) is not ALGORITHMS[algorithm].own_networks
    assert not has_identity(seen("env.agent_ids=false"))
    assert not has_identity(dict_of(agent_id=discrete(3)))


@pytest.mark.parametrize(("opponent", "evaluates"), [("self:6", "random"), ("self", "random"), ("uct:5", None)])
def test_who_plays_itself_is_evaluated_against_random_play(opponent, evaluates):
    user = Config(env={"env_id": "minding/TicTacToe-v0"}, policy={"type": "dqn"})
    given = [f"env.env_kwargs.opponent={opponent}"]
    assert compile_run(user, given).env.evaluator_kwargs.get("opponent") == evaluates
    given.append("env.evaluator_kwargs.opponent=minimax")
    assert compile_run(user, given).env.evaluator_kwargs.opponent == "minimax"
