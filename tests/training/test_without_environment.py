"""A run that knows its environment from recorded data only: ``env.env_id=data``."""

import csv
import shutil

import numpy as np
import pytest
from gymnasium import spaces
from of_algorithms import recorded
from recordings import described, log

import minding
from minding import training
from minding.cli import run
from minding.configs import compile_run
from minding.engine.config.config import Config
from minding.engine.data.dataset import Dataset, load_dataset
from minding.engine.data.dataset_writer import save_dataset
from minding.engine.data.holdout import hold_out
from minding.engine.errors import ConfigError
from minding.engine.run.run_dir import RunDir
from minding.envs.recorded_spec import action_space, observation_space
from minding.envs.spaces.actions import describe_actions
from minding.envs.spec import describe_observation
from minding.training.evaluation_env import in_environment

pytestmark = pytest.mark.eager


def settings(data, *more):
    user = Config(env={"env_id": "data"}, policy={"type": "bc", "other": {"data": str(data)}})
    return compile_run(user, ["run.loggers=[]", "exp_name=run", *more])


def test_actions_are_rescaled_as_the_configuration_says():
    spec = settings(recorded("Pendulum-v1"), "env.rescale_action=false").env.spec
    assert (spec.action.low, spec.action.high, spec.env_action.rescaled) == ([-2.0], [2.0], False)


def test_data_bring_the_environment_in_which_they_were_recorded(tmp_path):
    made = recorded("Pendulum-v1")
    cfg = compile_run("iql", [f"policy.other.data={made}"])
    assert compile_run("gail", [f"policy.other.data={made}"]).env.env_id == cfg.env.env_id
    assert cfg.env == compile_run("iql", ["env.env_id=Pendulum-v1", "env.max_episode_steps=200"]).env
    assert compile_run("iql", [f"policy.other.data={made}", "env.env_id=data"]).env.env_id == "data"

    def told(episode, **env):
        folder = tmp_path / f"data{len(list(tmp_path.iterdir()))}"
        save_dataset(folder, Dataset.of_episodes([episode], described(**env) if env else None))
        with pytest.raises(ConfigError, match=r"add --env ID, or env\.env_id=data to learn") as error:
            compile_run("bc", [f"policy.other.data={folder}"])
        return str(error.value)

    steps = log(40, np.zeros((40, 1), np.float32))
    assert "do not say in which environment they were recorded" in told(steps)
    assert "was recorded in 'Toy-v0': " in told(steps, env_id="Toy-v0")
    # Reading data runs no code of somebody else.
    assert "'mymodule:Env' names code" in told(steps, env_id="mymodule:Env")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run without an environment, whose data are gone since; its figures; its data."""
    folder = tmp_path_factory.mktemp("without")
    data = shutil.copytree(recorded("CartPole-v1"), folder / "data")
    cfg = settings(data, "run.max_train_iter=40", "policy.learn.batch_size=32", f"run.out_dir={folder}")
    summary = training.train(cfg, RunDir.create(cfg), progress=False)
    dataset = load_dataset(data)
    shutil.rmtree(data)
    return folder / "run", summary, dataset


def test_data_read_from_their_file_give_the_same_weights(tmp_path):
    more = ["run.max_train_iter=40", "policy.learn.batch_size=32", "policy.model.normalize_obs=true"]
    more += ["policy.other.holdout=0.2", "policy.eval.freq=32"]
    data, states, judged = load_dataset(recorded("CartPole-v1")), [], []
    for memory in ("device", "mapped"):
        place = [f"policy.other.data_memory={memory}", f"run.out_dir={tmp_path / memory}"]
        cfg = settings(recorded("CartPole-v1"), *more, *place)
        training.train(cfg, RunDir.create(cfg), progress=False)
        run_dir = RunDir.open(tmp_path / memory / "run")
        judged.append(judged_rows(run_dir))
        states.append(training.load_policy(run_dir).policy.state_dict())
    for name, values in states[0]["params"].items():
        assert values.tobytes() == states[1]["params"][name].tobytes()
    (first,), (second,) = (state["moments"].values() for state in states)
    # Of what is learned from alone.
    learned, held = hold_out(data, 0.2, 0)
    assert first["count"] == len(learned) == 300 - len(held)
    obs = learned.rows(["obs"], np.arange(len(learned)))["obs"]
    np.testing.assert_allclose(first["mean"], obs.mean(axis=0, dtype=np.float64), rtol=1e-5)
    # At 32, and the last policy.
    assert len(judged[0]) == 2
    assert judged[0] == judged[1]
    for name, value in first.items():
        assert np.array_equal(value, second[name])


def test_it_learns_and_is_evaluated_nowhere(trained):
    _, summary, _ = trained
    assert (summary.train_iter, summary.n_eval_episodes) == (40, 0)
    assert np.isnan(summary.eval_return)


def test_an_agent_needs_no_environment_to_act_and_be_saved(tmp_path):
    settings = [f"policy.other.data={recorded('Pendulum-v1')}", f"run.out_dir={tmp_path}"]
    agent = minding.Agent("bc", "data", settings=settings, progress=False)
    action = agent.predict(np.zeros(3, np.float32))
    assert (action.shape, agent.predict(np.zeros((4, 3), np.float32)).shape) == ((1,), (4, 1))
    with pytest.raises(ConfigError, match="there is no environment to play in"):
        agent.evaluate(1)
    loaded = minding.load(agent.save(tmp_path / "saved", evaluate=0), progress=False)
    assert loaded.predict(np.zeros(3, np.float32)) == action


def judged_rows(run_dir):
    with open(run_dir.metrics, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["eval/other_actions"]]
    return [(int(row["train_iter"]), float(row["eval/other_actions"])) for row in rows]


def test_the_final_policy_is_judged_wherever_the_run_stops(tmp_path):
    arguments = ["train", "bc", "env.env_id=data", f"policy.other.data={recorded('CartPole-v1')}", "run.loggers=[]"]
    arguments += ["policy.learn.batch_size=32", "policy.learn.steps_per_call=8", "policy.eval.freq=32"]
    arguments += ["policy.other.holdout=0.2", "policy.learn.anneal_steps=72", "--no-progress"]
    for name, limit in (("whole", 72), ("parts", 40)):
        assert run([*arguments, f"run.max_train_iter={limit}", f"run.out_dir={tmp_path / name}"]) == 0
    whole, parts = (RunDir(next((tmp_path / name).iterdir())) for name in ("whole", "parts"))
    assert [step for step, _ in judged_rows(whole)] == [32, 64, 72]
    assert judged_rows(parts)[-1][0] == 40
    assert judged_rows(parts)[-1][1] == parts.figures()["data_eval"]["other_actions"]
    assert run(["resume", str(parts.path), "run.max_train_iter=72", "--no-progress"]) == 0
    assert judged_rows(parts) == judged_rows(whole)
    # Of a run that has come to its end the figures are found again, and no row twice.
    assert run(["resume", str(parts.path), "--no-progress"]) == 0
    assert judged_rows(parts) == judged_rows(whole)
    assert parts.figures()["data_eval"] == whole.figures()["data_eval"] == {"other_actions": judged_rows(whole)[-1][1]}


def test_the_summary_draws_recorded_data_or_says_nothing_judges(tmp_path, capsys, printed):
    arguments = ["train", "iql", "env.env_id=data", f"policy.other.data={recorded('Pendulum-v1')}", "run.loggers=[]"]
    arguments += ["policy.learn.batch_size=32", "run.max_train_iter=32", "policy.model.hidden=[8]", "--no-progress"]
    arguments += [f"run.out_dir={tmp_path}", "policy.learn.gamma=0.5", "policy.eval.fqe_steps=100"]
    out = printed(*arguments, "exp_name=held", "policy.other.holdout=0.5", "policy.eval.fqe=true")
    for name in ("action distance", "TD error", "first value", "FQE value"):
        assert f"  {name} " in out
    assert "fitted Q evaluation: value of first states, discounted\n" in out
    assert (tmp_path / "held" / "curve.png").is_file()
    assert run([*arguments, "exp_name=alone"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    (told,) = [line for line in lines if line.startswith("evaluation ")]
    told = " ".join(told.split())
    assert told.startswith("evaluation none: nothing judges the policy: train with policy.other.holdout=0.1, ")
    assert "or with --env ID" in told


SPACES = spaces.Dict(
    {
        "box": spaces.Box(-1, np.inf, (2,), np.float32),
        "bits": spaces.MultiBinary(3),
        "pair": spaces.Tuple((spaces.Discrete(4), spaces.MultiDiscrete([2, 3]))),
        "image": spaces.Box(0, 255, (3, 8, 8), np.uint8),
        "action_mask": spaces.MultiBinary(5),
    }
)


def test_spaces_are_found_again_from_their_descriptions():
    acting = spaces.Discrete(5, start=2)
    described = describe_observation(SPACES, acting)
    assert describe_observation(observation_space(described), acting) == described
    boxes = (
        spaces.Box(-2, 2, (1,), np.float32),
        spaces.Box(np.float64([-1, -3]), np.float64([np.inf, 3]), dtype=np.float64),
    )
    for space in (acting, *boxes, spaces.MultiDiscrete([[2, 3]], start=[[1, 0]])):
        assert action_space(describe_actions(space, rescale=True)) == space


def test_the_policy_is_judged_in_an_environment_of_its_spaces(trained, capsys, tmp_path, refused, printed):
    folder, _, _ = trained
    assert printed("eval", folder, "--env", "CartPole-v1", "--episodes", "5").startswith("bc on CartPole-v1: return ")
    assert run(["record", str(folder), "--env", "CartPole-v1", "--out", str(tmp_path / "pole.gif")]) == 0
    assert (tmp_path / "pole.gif").stat().st_size > 1000
    capsys.readouterr()
    for env_id, message in (
        ("Acrobot-v1", "--env Acrobot-v1: the policy cannot act there: observation.shape is [4] there, [6] here"),
        ("data", "env.env_id=data: there is no environment to play in"),
        ("CartPole-v9", "CartPole-v9"),
    ):
        assert message in refused("eval", folder, "--env", env_id)


def test_bounds_matter_only_for_actions_that_are_rescaled():
    cfg = compile_run("bc", ["env.env_id=Pendulum-v1"])
    cfg.env.spec.observation.high = [9.0, 9.0, 9.0]
    assert in_environment(cfg, "Pendulum-v1").env.spec.observation.high == [1.0, 1.0, 8.0]
    cfg.env.spec.env_action.high = 3.0
    with pytest.raises(ConfigError, match=r"action\.high is 3.0 there, 2.0 here"):
        in_environment(cfg, "Pendulum-v1")
    q_network = compile_run("discrete_cql", ["env.env_id=CartPole-v1"])
    with pytest.raises(
        ConfigError, match=r"--env Pendulum-v1: .*observation\.shape is \[4\] there, \[3\] here .* with the"
    ):
        in_environment(q_network, "Pendulum-v1")
    cfg.env.spec.env_action.rescaled = False
    assert in_environment(cfg, "Pendulum-v1").env.spec.env_action.rescaled is False


@pytest.mark.parametrize("command", [["eval"], ["record"], ["data", "record", "--steps", "5"]])
def test_what_plays_says_that_there_is_no_environment(command, trained, refused):
    error = refused(*command, trained[0])
    assert error.startswith("minding: env.env_id=data: there is no environment to play in")
    assert error.endswith("`minding eval RUN --env ID` plays in one that has their spaces\n")
