"""The pages tell the truth: code runs, commands parse, links lead somewhere, tables are whole."""

import ast
import dataclasses
import importlib.util
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
import yaml
from fakes import AgePolicy, CountingEnv
from packaging.requirements import Requirement
from pages import CHINESE, PAGES, ROOT, anchors, blocks, code_words, links, name_of, prose, table
from test_packaging import PYPROJECT

import minding
import minding.middleware
from minding import training
from minding.cli import cli, run
from minding.cli.settings import with_shortcuts
from minding.configs import PRESETS, compile_run, load_preset, load_user_config
from minding.engine import OnlineRLContext, Task, task
from minding.engine.chain.lifecycle import GUARANTEES
from minding.engine.chain.middleware import declaration_of
from minding.engine.config.compiler import RUN_SCHEMA, save_config
from minding.envs import config_schema
from minding.envs.single.wrappers import WRAPPERS
from minding.middleware import StepCollector
from minding.policies import ALGORITHMS

README = ROOT / "README.md"
INSTALLATION = ROOT / "docs" / "installation.md"
DOCS = ROOT / "docs"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

# What a block that is a fragment follows. `fakes` runs in this process, with stand-ins for environments and policy.
CHAIN = """
from minding.engine import Config
from minding.configs import compile_run
from minding.engine import OnlineRLContext, task
from minding.engine.buffers import ReplayBuffer
from minding.envs import make_env_manager
from minding.middleware import *
from minding.policies import {policy}
overrides = ["policy.collect.n_sample=64", "policy.learn.{few}", "policy.eval.freq=64", "policy.eval.n_episode=5"]
cfg = compile_run(Config(env=dict(env_id="CartPole-v1"), policy=dict(type="{type}")), overrides)
collector_env = make_env_manager(cfg.env, cfg.env.collector_env_num, cfg.seed)
evaluator_env = make_env_manager(cfg.env, cfg.env.evaluator_env_num, cfg.seed + 1, training=False)
policy = {policy}(cfg)
"""
PPO_CHAIN = CHAIN.format(policy="PPO", type="ppo", few="n_epoch=1")
EXPORTED = """
from minding.engine import Config
from minding import training
from minding.configs import compile_run
from minding.engine.run.run_dir import RunDir
settings = Config(env=dict(env_id="CartPole-v1"), policy=dict(type="ppo"), run=dict(max_env_step=1024))
cfg = compile_run(settings, ["run.final_episodes=1", "exp_name=cartpole_ppo"])
run = RunDir.create(cfg)
training.train(cfg, run, progress=False)
for file_format in ("onnx", "mindir"):
    training.export_run(run, file_format, None, run.path / f"policy.{file_format}")
"""
PREPARATIONS = {
    "dqn": CHAIN.format(policy="DQN", type="dqn", few="warmup=64")
    + "buffer_ = ReplayBuffer(1000, policy.learn_mode.fields, seed=cfg.seed)\n",
    "ppo": PPO_CHAIN,
    "async": PPO_CHAIN,
    "gymnasium": "import gymnasium\nimport numpy as np\n",
    "fakes": "",
}
# Workers import the script of their parent; exported files are for programs that never import minding.
APART = ("async", "export")
# Words of a first draft, and what is written instead; assembled, so that this file does not hold them.
DRAFT = {
    "in " + "turns": "synchronously",
    "made " + "anew": "rebuilt",
    "goes " + "on": "continues",
    "at the " + "begin ": "at the start of",
    "from one " + "command": "with one command",
    "that was never " + "stopped": "an uninterrupted run",
    "what stands " + "after": "code after",
    "says " + "the fix": "with the fix",
    "learned from " + "once": "used once",
    "came of " + "a fault": "corrupted data",
    "counts as not " + "made": "is not counted",
    "takes a quarter " + "of the time": "is four times as fast",
    "holds them " + "current": "keeps them current",
    "an " + "iteration |": "per iteration",
    "normal" + "is": "normaliz",
    "step " + "size": "learning rate",
    "time " + "line": "timeline",
    "by hand " + "that": "hand-coded",
    "controller by " + "hand": "hand-coded controller",
    "is that " + "of": "the noun itself",
    "behind the " + "last": "after the last",
    " an" + "ew": "again",
    "a name of " + "its own": "its own name",
    "has " + "-": "scores -",
    "filled " + "up": "padded",
    "what " + "fills": "padding",
    "counts for " + "nothing": "is left out",
    "count for " + "nothing": "are left out",
    "the steps of Adam " + "as they": "does not change Adam's updates",
    "minibatch are " + "each": "each makes up half of every minibatch",
    "to the " + "bit": "bit-identical",
    "made to " + "go on": "can continue",
    "held " + "within": "clipped to",
    "says so " + "once": "is printed once",
    "for want " + "of": "for lack of",
    "what there " + "is": "the noun itself",
    "a text " + "or": "a string or",
    "haviour": "behavior",
    "colour": "color",
    "avour": "favor",
    "eighbour": "neighbor",
    "entralis": "centraliz",
}


# Code


def test_every_code_block_is_fenced_and_names_its_language():
    indented = [name_of(page) for page in PAGES if re.search(r"\n\n {4,}\S", prose(page))]
    assert indented == []
    assert {block.language for block in blocks()} == {"python", "bash", "diff", "text", "math"}


def running(slow):
    apart = ("skip", "in order", "program")
    alone = [each for each in blocks("python") if all(each.note(kind) is None for kind in apart)]
    return [each for each in alone if each.slow == slow]


@pytest.mark.parametrize("block", running(slow=False), ids=str)
def test_a_python_block_runs(block, tmp_path, monkeypatch, counting_config):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "block"}
    if block.note("after") == "fakes":
        names |= fake_names(counting_config("ppo"))
        task.start(ctx=OnlineRLContext())
    exec(PREPARATIONS.get(block.note("after"), ""), names)  # noqa: S102
    before = set(names)
    exec(block.code, names)  # noqa: S102
    if block.note("after") == "fakes":
        run_what_it_defines([names[name] for name in names if name not in before], names)


def fake_names(cfg):
    import time

    @dataclasses.dataclass
    class MyContext(OnlineRLContext):
        busy_seconds: float = 0.0

    def nothing(*args, **kwargs):
        pass

    fakes = dict(cfg=cfg, policy=AgePolicy(), collector_env=CountingEnv(), a=nothing, b=nothing, handler=nothing)
    library = dict(dataclasses=dataclasses, time=time, task=task, StepCollector=StepCollector)
    return {**fakes, **library, "OnlineRLContext": OnlineRLContext, "MyContext": MyContext, "timed": lambda fn: fn}


def run_what_it_defines(defined, names):
    """Uses the middleware that a block defines in a chain, and the context, and saves and restores their state."""
    middleware = [each() if inspect.isclass(each) and "__call__" in vars(each) else each for each in defined]
    middleware = [each for each in middleware if callable(each) and not inspect.isclass(each)]

    def chain():
        own = Task()
        own.start(ctx=names["MyContext"]())
        own.use(StepCollector(names["cfg"], AgePolicy().collect_mode, CountingEnv()))
        for each in middleware:
            own.use(each)
        return own

    with chain() as first:
        first.run(max_step=2)
    state = first.state_dict()
    with chain() as second:
        second.load_state_dict(state)
        np.testing.assert_equal(second.state_dict(), state)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder with the exported files of a trained agent."""
    folder = tmp_path_factory.mktemp("exported")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(EXPORTED, {"__name__": "block"})  # noqa: S102
    return folder


@pytest.fixture
def brief_ends(monkeypatch):
    """Runs that do not say how many episodes evaluate the result play two."""
    option = RUN_SCHEMA["run"]["final_episodes"]
    monkeypatch.setitem(RUN_SCHEMA["run"], "final_episodes", dataclasses.replace(option, default=2))


@pytest.mark.slow
@pytest.mark.shared_graphs
@pytest.mark.usefixtures("brief_ends")
@pytest.mark.parametrize("block", running(slow=True), ids=str)
def test_a_block_that_trains_runs(block, tmp_path, request, monkeypatch):
    code = block.code
    if block.note("after") == "export":
        tmp_path = request.getfixturevalue("exported")
    code = PREPARATIONS.get(block.note("after"), "") + code
    if block.note("after") in APART:
        run_script(code, tmp_path)
    else:
        monkeypatch.chdir(tmp_path)
        exec(code, {"__name__": "block"})  # noqa: S102


def in_order():
    """Pages whose blocks follow each other; the library's updates are not compiled where there are a few only."""
    for page in sorted({each.page for each in blocks() if each.in_order}):
        few = page.name in ("multi_agent.md", "recorded_logs.md")
        yield pytest.param(page, id=name_of(page), marks=pytest.mark.eager if few else pytest.mark.shared_graphs)


@pytest.mark.slow
@pytest.mark.usefixtures("brief_ends")
@pytest.mark.parametrize("page", list(in_order()))
def test_a_page_that_is_read_from_top_to_bottom_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {"__name__": "block"}
    for block in blocks("python", "bash"):
        if block.page != page or not block.in_order:
            continue
        if block.note("needs") and importlib.util.find_spec(block.note("needs")) is None:
            pytest.skip(f"{block}: {block.note('needs')} is not installed")
        if block.language == "bash":
            run_commands(block.code, tmp_path)
            continue
        if block.note("saved as"):
            file = Path(block.note("saved as"))
            file.write_text(block.code)
            forget_afterwards(file.stem, monkeypatch)
            names |= vars(importlib.import_module(file.stem))
        else:
            exec(block.code, names)  # noqa: S102


def forget_afterwards(module, monkeypatch):
    """Lets this test import its own file of that name, and the tests after it theirs."""
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, module)


def run_commands(code, folder):
    """Runs the commands of a block: minding's in this process, which has loaded MindSpore, others in a shell."""
    lines = [shlex.split(line, comments=True) for line in code.replace("\\\n", "").splitlines()]
    if all(line[:1] == ["minding"] for line in lines) and not set(code) & set("|&;$*>~"):
        assert [run(line[1:]) for line in lines] == [0] * len(lines)
        return
    code = re.sub(r"^minding ", f"{shlex.quote(sys.executable)} -m minding ", code, flags=re.MULTILINE)
    command = ["bash", "-ec", code]
    out = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr


def run_script(code, folder):
    script = folder / "block.py"
    lines = code.splitlines()
    imports = [line for line in lines if line.startswith(("from ", "import "))]
    rest = [f"    {line}" for line in lines if line not in imports]
    # Worker processes import the script again: a guard keeps them from running it, as in every script of a user.
    script.write_text("\n".join([*imports, 'if __name__ == "__main__":', *rest, ""]))
    command = [sys.executable, str(script)]
    out = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr


# Commands


@pytest.mark.parametrize("block", blocks("bash"), ids=str)
def test_a_shell_block_holds_commands_that_exist(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for other in blocks("python"):
        if other.page == block.page and other.note("saved as"):
            Path(other.note("saved as")).write_text(other.code)
            forget_afterwards(Path(other.note("saved as")).stem, monkeypatch)
    # What a run folder of the page holds is what an earlier command of it trained.
    monkeypatch.setattr("minding.training.assembly.check_transport", lambda options: None)
    trained = {}
    for other in blocks("bash"):
        if other.page == block.page and other.line < block.line:
            for words in commands_of(other):
                if words[:2] == ["minding", "train"] and words[2] in PRESETS:
                    trained[words[2]] = settings_of("train", words[2:])[0]
    for words in commands_of(block):
        check_command(words, trained)


def commands_of(block):
    """The commands of a block, as words; comments are left out."""
    for line in block.code.replace("\\\n", "").splitlines():
        for command in line.partition(" #")[0].split("&&"):
            yield shlex.split(command)


def check_command(words, trained):
    match words:
        case ["minding", name, *arguments]:
            check_minding(name, arguments, trained)
        case ["make", target]:
            assert re.search(rf"^{target}:.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
        case [".venv/bin/python" | "python", "-m", "pytest", path]:
            assert (ROOT / path).is_file()
        case [".venv/bin/python" | "python", "-m", module, *_]:
            assert (ROOT / f"{module.replace('.', '/')}.py").is_file()
        case ["pip", "install", "-e", extra]:
            assert set(Requirement(f"minding{extra[1:]}").extras) <= set(PYPROJECT["project"]["optional-dependencies"])
        case ["pip", "install", package]:
            assert set(Requirement(package).extras) <= set(PYPROJECT["project"]["optional-dependencies"])
        case [".", ".venv/bin/activate"] | ["chmod", "600", "~/.ray/auth_token"]:
            pass
        case ["ray", "start" | "get-auth-token", *_]:
            pass
        case ["export", setting]:
            assert setting.startswith("RAY_")
        case _:
            raise AssertionError(f"no check for {words}")


def command_of(words):
    """The command that words name, which may be one of a group, and the words after its name."""
    command = cli.commands[words[0]]
    if isinstance(command, click.Group) and len(words) > 1:
        return command.commands[words[1]], list(words[2:])
    return command, list(words[1:])


def settings_of(name, arguments):
    """The configuration of a command that trains, checked as the program does, and click's context."""
    command, words = command_of([name, *arguments])
    ctx = command.make_context(name, words)
    given = with_shortcuts(ctx.params.get("overrides", ()), ctx.params)
    cfg = compile_run(load_user_config(ctx.params.get("config") or ctx.params["run"]), given)
    if cfg.lanes.async_mode:
        training.check_runnable(cfg)
    return cfg, ctx


def check_minding(name, arguments, trained):
    """Parses a command line as the program does, and compiles and checks the settings it names."""
    for argument in arguments:
        run = re.match(r"runs/((\w+)[\w-]*)", argument)
        if run:
            Path(run[0]).mkdir(parents=True, exist_ok=True)
            preset = run[2] if run[2] in PRESETS else "cartpole_ppo"
            settings = trained.get(preset) or compile_run(load_preset(preset))
            save_config(settings, Path(run[0], "config.yaml"))
            if Path(argument).suffix == ".yaml":
                Path(argument).parent.mkdir(exist_ok=True)
                save_config(settings, argument)
            elif Path(argument).suffix:
                Path(argument).touch()
    command, words = command_of([name, *arguments])
    ctx = command.make_context(name, words)
    source = ctx.params.get("config") or ctx.params.get("run")
    if source and (source in PRESETS or Path(source).exists()):
        settings_of(name, arguments)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_within_sentences_exist(page):
    for code in code_words(prose(page)):
        words = code.split()
        if words[:1] == ["minding"] and len(words) > 1 and words[1] != "COMMAND":
            command, _ = command_of(words[1:])
            options = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= options, code
        elif (words[:1] == ["make"] and len(words) == 2) or words[:2] == ["python", "-m"]:
            check_command(words, {})
        elif words[:3] == ["pip", "install", "-e"]:
            check_command(shlex.split(code), {})


def test_the_first_block_of_the_readme_works_in_a_fresh_clone(tmp_path):
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    block = next(each for each in blocks("bash") if each.page == README)
    # All but the installation itself: make says what it would do.
    code = block.code.replace("make train ", "make -n train ").replace(". .venv/bin/activate", "")
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    command = ["bash", "-ec", f"git clone --quiet {shlex.quote(str(ROOT))} clone && cd clone\n{code}"]
    out = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert out.returncode == 0, out.stderr
    assert ".venv/bin/minding train cartpole_ppo" in out.stdout


# Links


def test_links_and_anchors_lead_somewhere():
    broken = []
    for page in [*PAGES, *CHINESE]:
        for link in links(page):
            target, _, anchor = link.partition("#")
            path = (page.parent / target).resolve() if target else page
            if not path.exists() or (anchor and anchor not in anchors(path)):
                broken.append(f"{name_of(page)}: {link}")
    assert broken == []


def test_the_overview_links_every_page():
    overviews = [DOCS / "README.md", DOCS / "results" / "studies.md"]
    linked = {(page.parent / link.partition("#")[0]).resolve() for page in overviews for link in links(page)}
    others = [page for page in PAGES if page not in (README, DOCS / "README.md")]
    # The pages of the algorithms are found by the overview in their folder.
    assert [name_of(page) for page in others if not {page, page.parent / "README.md"} & linked] == []


# Tables


def first_words(page, column):
    return [code_words(row[0])[0] for row in table(page, column)]


def test_the_table_of_events_is_whole():
    emitted = set()
    for folder in ("engine", "middleware", "configs", "policies", "envs", "src/minding/cli"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "emit":
                    emitted |= {arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)}
    assert set(first_words(DOCS / "reference" / "context.md", "event")) == emitted


def test_the_table_of_context_fields_is_whole():
    rows = table(DOCS / "reference" / "context.md", "field of OnlineRLContext")
    kept = {name for row in rows if row[1] == "yes" for name in code_words(row[0])}
    fields = {field.name for field in dataclasses.fields(OnlineRLContext)}
    assert {name for row in rows for name in code_words(row[0])} == fields
    assert kept == set(OnlineRLContext().kept)


def test_every_key_has_a_table():
    markers = {"keys:run", "keys:env", "keys:common", "keys:shared", *(f"keys:{name}" for name in ALGORITHMS)}
    found = {marker for page in PAGES for marker in re.findall(r"<!-- generated:(keys:\w+) -->", page.read_text())}
    assert found == markers
    of_algorithms = [DOCS / "algorithms" / f"{name}.md" for name in ALGORITHMS]
    assert all(f"<!-- generated:presets:{page.stem} -->" in page.read_text() for page in of_algorithms)
    # A page opens with when to use the algorithm, and a learning curve.
    for page in of_algorithms:
        opening = page.read_text().split("```", 1)[0].split("\n\n")
        assert opening[1].startswith("Use "), page
        assert re.match(r"!\[evaluation return of (\w+)\]\(img/\1\.png\)$", opening[2]), page
    rows = table(DOCS / "reference" / "lanes.md", "key")
    lanes = {word for row in rows for word in code_words(row[0]) if word.startswith("lanes.")}
    assert lanes == {f"lanes.{key}" for key in RUN_SCHEMA["lanes"]}


def test_tables_of_backends_wrappers_and_guarantees_are_whole():
    assert set(first_words(DOCS / "reference" / "environment_packages.md", "`env.backend`")) == set(
        config_schema()["backend"].allowed
    )
    assert first_words(DOCS / "reference" / "environment_packages.md", "name") == sorted(WRAPPERS)
    assert first_words(DOCS / "reliability.md", "guarantee") == list(GUARANTEES)


def test_the_page_for_users_of_di_engine_names_every_middleware():
    page = DOCS / "from_di_engine.md"
    ours = {name for name in dir(minding.middleware) if declaration_of(getattr(minding.middleware, name))}
    named = {name for name in re.findall(r"\w+", page.read_text()) if name in ours}
    assert named == ours
    rows = table(page, "DI-engine")
    assert [theirs for theirs, answer in rows if not answer] == []
    missing = [theirs for theirs, answer in rows if "not in this version" in answer]
    assert [theirs for theirs in missing if ours & set(code_words(theirs))] == []


def test_dependencies_and_extras_are_those_of_the_package():
    rows = " ".join(row[0] for row in table(INSTALLATION, "package"))
    missing = [name for line in PYPROJECT["project"]["dependencies"] if (name := Requirement(line).name) not in rows]
    assert missing == []
    section = INSTALLATION.read_text().partition("\n## Extras")[2].partition("\n## ")[0]
    assert set(PYPROJECT["project"]["optional-dependencies"]) <= set(code_words(section))


def test_the_pages_keep_to_their_words():
    found = [
        f"{name_of(page)}: {draft!r}, write {better!r}"
        for page in PAGES
        for draft, better in DRAFT.items()
        if draft in page.read_text()
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_is_short_enough_to_be_read(page):
    # Tables that are written from the code or from results are looked up, not read.
    read = re.sub(r"<!-- (generated|results):.*?<!-- /\1 -->", "", page.read_text(), flags=re.DOTALL)
    assert len(read.split()) <= 2500, "split it: a page is a guide, a reference or a report of results"


LIBRARIES = {
    "stable_baselines3": "Stable-Baselines3",
    "tianshou": "Tianshou",
    "mindspore_rl": "MindSpore RL",
    "kaiwu": "(?:KaiWu|Reverb)",
}


@pytest.mark.parametrize("library", [*LIBRARIES, "di_engine"])
def test_a_page_for_users_of_another_library_names_what_exists(library):
    words = [word for row in rows_of(library) for word in code_words(row[-1])]
    keys = {".".join(path) for algorithm in ALGORITHMS.values() for path in leaves(algorithm.config_schema(), "policy")}
    keys |= {".".join(path) for path in [*leaves(config_schema(), "env"), *leaves(RUN_SCHEMA)]}
    named = {found[0] for word in words if (found := re.match(r"(?:env|lanes|policy\.\w+|pool|run)\.[a-z_.]+", word))}
    assert named <= keys
    assert len(named) > 5
    names = {name for word in words for name in re.findall(r"\bminding(?:\.\w+)+", word)}
    assert [name for name in names if not resolves(name)] == []
    methods = {name for word in words for name in re.findall(r"\bagent\.(\w+)\(", word)}
    assert [name for name in methods if not hasattr(minding.Agent, name)] == []


def rows_of(library):
    """The rows of all tables of a page for users of another library; the last column has our names."""
    page = DOCS / f"from_{library}.md"
    title = LIBRARIES.get(library, "DI-engine")
    tables = re.findall(rf"^\| ({title}[^|]*|) \|", page.read_text(), re.MULTILINE)
    return [row for column in dict.fromkeys(tables) for row in table(page, column)]


def resolves(name):
    module, _, attribute = name.rpartition(".")
    try:
        return bool(importlib.import_module(name))
    except ModuleNotFoundError:
        return hasattr(importlib.import_module(module), attribute)


def leaves(schema, *path):
    for key, node in schema.items():
        yield from leaves(node, *path, key) if isinstance(node, dict) else [(*path, key)]


@pytest.mark.parametrize("page", [DOCS / "architecture.md", ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_the_maps_of_the_code_name_files_that_exist(page):
    text = page.read_text()
    named = {place for place in re.findall(r"`([a-z]+/[a-z_/.]+)`", text) if "<" not in place}
    assert len(named) > 15
    assert [place for place in named if not (ROOT / place).exists()] == []


def test_the_files_in_which_ppo_is_read_define_its_gradient_step():
    section = (DOCS / "architecture.md").read_text().partition("## Read PPO in this order")[2].partition("\n## ")[0]
    files = re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)
    tree = ast.parse("\n".join((ROOT / file).read_text() for file in files))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and type(node.ctx) is ast.Store}
    (cell,) = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "PPOCell"]
    calls = [node.func for node in ast.walk(cell) if isinstance(node, ast.Call)]
    called = {each.attr for each in calls if isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self"}
    assert called <= defined
    assert len(called) > 4


def test_the_citation_and_the_changelog_name_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == minding.__version__
    assert citation["title"].startswith("minding: ")
    assert minding.__version__ in (ROOT / "CHANGELOG.md").read_text()
