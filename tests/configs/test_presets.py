"""Presets and the ways to name a configuration."""

import re
import subprocess
import sys

import pytest
from easydict import EasyDict
from fakes import dict_of, discrete, needs_kernels

from minding.configs import PRESETS, compile_run, load_preset, load_user_config
from minding.configs.chains import get_chain
from minding.configs.names import expectation
from minding.engine import Config, MissingExtraError
from minding.engine.config.compiler import save_config, schema_defaults
from minding.engine.data.agent_axis import has_identity
from minding.engine.process import runtime
from minding.engine.run.run_summary import opponent_of
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


SAVED = {"seed": 7, "env": {"env_id": "CartPole-v1"}, "policy": {"type": "ppo"}}


def test_a_saved_configuration_is_found_by_file_and_folder(tmp_path):
    save_config(SAVED, tmp_path / "config.yaml")
    assert load_user_config(tmp_path / "config.yaml") == SAVED
    assert load_user_config(tmp_path) == SAVED


def test_a_python_file_gives_its_main_config(tmp_path):
    path = tmp_path / "mine.py"
    settings = "main_config = dict(exp_name='mine', seed=7, policy=dict(type='ppo', learn=dict(gamma=0.5)))"
    path.write_text(f"from easydict import EasyDict\n{settings}\nmain_config = EasyDict(main_config)\n")
    cfg = load_user_config(path)
    assert (cfg.exp_name, cfg.seed, cfg.policy.learn.gamma) == ("mine", 7, 0.5)
    assert isinstance(cfg.policy.learn, EasyDict)
    assert vars(cfg) == {}


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
    cfg = compile_run(user, given)
    assert (cfg.env.evaluator_kwargs.get("opponent"), opponent_of(cfg)) == (evaluates, evaluates or opponent)
    given.append("env.evaluator_kwargs.opponent=minimax")
    cfg = compile_run(user, given)
    assert cfg.env.evaluator_kwargs.opponent == opponent_of(cfg) == "minimax"
    # PettingZoo's turn-based games are played against random play if nothing else is said.
    assert [opponent_of({"env": {"env_id": name}}) for name in ("classic/go_v5", "CartPole-v1")] == ["random", None]
