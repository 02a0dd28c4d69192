"""`minding data`: record, describe, draw, check and convert data for offline learning."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from minding.cli.common import (
    COUNT,
    SEED,
    Command,
    GivenPath,
    RunFolder,
    bad_input,
    checkpoint_of,
    ckpt_option,
    echo,
    line,
    out_option,
    print_fields,
    trust_option,
    writing,
    written,
)

if TYPE_CHECKING:
    from minding.engine.data.dataset import Dataset
    from minding.engine.run.run_dir import RunDir


@click.group("data")
def data() -> None:
    """Record, describe, draw, check and convert recorded data."""


def _with(*options: Any) -> Any:
    """A decorator that adds options to a command."""
    return lambda command: functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


_with_reference_options = _with(
    click.option("--random-return", type=float, metavar="R", help="Mean return of random actions, which scores 0."),
    click.option("--expert-return", type=float, metavar="R", help="Mean return of an expert, which scores 100."),
)


def _references(random_return: float | None, expert_return: float | None) -> Any:
    """The reference returns that the options give; None without these options."""
    if (random_return is None) != (expert_return is None):
        given, absent = ("--random-return", "--expert-return")[:: 1 if expert_return is None else -1]
        raise click.UsageError(f"{given} without {absent}: a normalized score needs both")
    if random_return is None or expert_return is None:
        return None
    from minding.engine.data.references import References

    return References(random_return, expert_return)


@data.command(
    cls=Command,
    examples=(
        "data record runs/pendulum_sac --steps 20000",
        "data record --random --env Pendulum-v1 --steps 5000 -o random",
    ),
)
@click.argument("run", type=RunFolder(), required=False)
@click.option("--steps", type=COUNT, required=True, help="Environment steps to record.")
@out_option("FOLDER", "Folder of the data; RUN/data by default.")
@click.option("--explore", is_flag=True, help="Act with exploration, as during collection.")
@click.option("--random", is_flag=True, help="Take random actions in the environment of RUN or --env.")
@click.option("--env", metavar="ENV_ID", help="Environment for --random, instead of that of RUN.")
@click.option("--seed", type=SEED, help="Seed of the environments; the run's own by default.")
@_with_reference_options
@ckpt_option
@trust_option
def record(
    run: str | None,
    steps: int,
    out: str | None,
    seed: int | None,
    random_return: float | None,
    expert_return: float | None,
    ckpt: str | None,
    trust: bool,
    **how: Any,
) -> None:
    """Record environment steps of an agent, for offline learning.

    The agent is the one of the run folder RUN. `minding train cartpole_bc policy.other.data=FOLDER` learns from the
    recorded data.
    """
    _check_options(run, ckpt, out, **how)
    with bad_input():
        from minding.configs import compile_run
        from minding.engine.errors import DataError
        from minding.engine.paths import absolute, shown
        from minding.engine.run.run_dir import RunDir

        references = _references(random_return, expert_return)
        run_dir = None if run is None else RunDir.open(run, trust=trust)
        folder = absolute(str(out)) if run_dir is None or out is not None else run_dir.products / "data"
        if folder.exists():
            raise DataError(f"{shown(folder)!r} exists: remove it, or give another folder with --out")
        # Nothing of the algorithm is used; PPO is chosen because it acts in every space.
        cfg = (
            compile_run("ppo", [f"env.env_id={how['env']}"]) if run_dir is None else compile_run(run_dir.load_config())
        )
        from minding import training

        training.check_recordable(cfg)
        chosen = None if run_dir is None else checkpoint_of(run_dir, ckpt)

    player = "random actions" if how["random"] else cfg.policy.type
    with click.progressbar(length=steps, label=f"{player} on {cfg.env.env_id}") as bar:
        done = 0

        def report(recorded: int) -> None:
            nonlocal done
            bar.update(min(recorded, steps) - done)
            done = min(recorded, steps)

        if how["random"]:
            found = training.record_random(cfg, steps, folder, seed=seed, references=references, report=report)
        else:
            played: RunDir = run_dir  # type: ignore[assignment]
            found = training.record_data(
                played, steps, folder, ckpt=chosen, explore=how["explore"], seed=seed, references=references,
                report=report,
            )  # fmt: skip
    echo(f"{len(found):,} steps, {_returns(found)}")
    echo(f"data: {shown(folder)}")


def _check_options(run: str | None, ckpt: str | None, out: str | None, **how: Any) -> None:
    """Refuses combinations of options that contradict each other."""
    if how["random"]:
        if (run is None) == (how["env"] is None):
            raise click.UsageError(
                "--random plays in the environment of RUN or of --env ENV_ID: give exactly one of them"
            )
        if how["explore"] or ckpt is not None:
            raise click.UsageError("--random does not play an agent: leave --explore and --ckpt out")
        if run is None and out is None:
            raise click.UsageError("--out is missing: give the folder for the data")
    elif run is None or how["env"] is not None:
        raise click.UsageError("give the run folder RUN whose agent plays, or --random with --env ENV_ID")


def _returns(found: Dataset) -> str:
    returns = found.returns()
    if not len(returns):
        return "no complete episode: record more steps to learn the returns"
    spread = f"return {returns.mean():.1f} ± {returns.std():.1f}, from {returns.min():.1f} to {returns.max():.1f}"
    return f"{len(returns)} complete episodes: {spread}"


@data.command(cls=Command, examples=("data info runs/pendulum_sac/data",))
@click.argument("folder", type=GivenPath())
def info(folder: str) -> None:
    """Describe recorded data.

    The description has sizes, spaces, returns, episode ends and the fingerprint.
    """
    with bad_input():
        from minding.engine.data.dataset import load_dataset
        from minding.training.data_inspection import describe_dataset

        rows = describe_dataset(load_dataset(folder, mapped=True))
    echo(line(folder))
    print_fields({name: line(text) for name, text in rows.items() if text})


@data.command(cls=Command, examples=("data plot runs/pendulum_sac/data",))
@click.argument("folder", type=GivenPath())
@out_option("FILE", "The picture; FOLDER.png by default.")
def plot(folder: str, out: str | None) -> None:
    """Draw recorded data.

    The picture has returns, lengths, actions, and the distribution of observations.
    """
    with bad_input():
        from minding.engine.data.dataset import load_dataset
        from minding.engine.run.plotting import picture_of
        from minding.training.data_plot import plot_dataset

        path = picture_of(f"{folder.rstrip('/')}.png" if out is None else out)
        replaced = path.exists()
        found = load_dataset(folder, mapped=True)
        with writing("picture", path):
            plot_dataset(found, path)
    written("picture", path, replaced)


class Limits(click.ParamType[list[float]]):
    """A number, or several separated by commas."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[float]:
        try:
            return [float(text) for text in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r}: expected a number, or several separated by commas, such as -1,-0.5")


_with_source_options = _with(
    click.option("--horizon", type=COUNT, help="Time limit of episodes, for D4RL files without timeouts."),
    click.option("--env", metavar="ENV_ID", help="Environment of the data, instead of the one that the data name."),
    click.option(
        "--action-low",
        type=Limits(),
        metavar="X",
        help="Smallest action, if the data do not contain it: one number, or one per entry of an action, "
        "separated by commas.",
    ),
    click.option("--action-high", type=Limits(), metavar="X", help="Largest action, in the same form as --action-low."),
)


@data.command(
    cls=Command, examples=("data check runs/pendulum_sac/data", "data check halfcheetah_medium-v2.hdf5 --horizon 1000")
)
@click.argument("source")
@_with_source_options
def check(source: str, **how: Any) -> int:
    """Check data for faults; exit code 1 if there is one.

    SOURCE is a folder of recorded data, a Minari set or a D4RL file (.hdf5).
    """
    with bad_input():
        from minding.engine.errors import DamagedDataError
        from minding.training.data_inspection import Finding, check_source

        try:
            findings = check_source(_open(source, **how))
        except DamagedDataError as error:
            findings = [Finding(str(error), True)]
    for finding in findings:
        echo(f"{'fault' if finding.fault else 'note'}: {finding.text}")
    faults = sum(finding.fault for finding in findings)
    echo(f"{_counted(faults, 'fault')}, {_counted(len(findings) - faults, 'note')}")
    return 1 if faults else 0


@data.command(
    cls=Command, examples=("data convert halfcheetah_medium-v2.hdf5 -o medium", "data convert first second -o both")
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@out_option("FOLDER", "Folder of the data, or of a Minari set.", required=True)
@click.option("--skip-damaged", is_flag=True, help="Leave out damaged episodes, and report their number.")
@click.option("--to-minari", metavar="ID", help="Write a Minari set with this id, such as pole/expert-v0.")
@_with_reference_options
@_with_source_options
def convert(
    sources: tuple[str, ...],
    out: str,
    skip_damaged: bool,
    to_minari: str | None,
    random_return: float | None,
    expert_return: float | None,
    **how: Any,
) -> None:
    """Convert or join sets of data into a folder of recorded data.

    SOURCE is a folder of recorded data, a Minari set (its folder, or its id on this machine) or a D4RL file (.hdf5).
    """
    with bad_input():
        from minding.engine.console import stderr
        from minding.training.conversion import Converted
        from minding.training.conversion import convert as convert_all

        references = _references(random_return, expert_return)
        if to_minari is not None:
            from minding.training.formats import check_id

            check_id(to_minari)
        opened = [_open(source, **how) for source in sources]
        if to_minari is not None:
            _to_minari(opened, sources, Path(out), to_minari, references)
            return

        def report(so_far: Converted) -> None:
            if so_far.episodes % 1000 == 0 and so_far.episodes:
                click.echo(f"\r{so_far.steps:,} steps", stderr(), nl=False)

        # Only a terminal can replace a line by another.
        shown = report if stderr().isatty() else lambda so_far: None
        try:
            done = convert_all(opened, Path(out), skip_damaged=skip_damaged, references=references, report=shown)
        finally:
            if stderr().isatty():
                click.echo("\r\x1b[K", stderr(), nl=False)
    left_out = [f"{_counted(done.dropped, 'row')} dropped: what followed is not known"] if done.dropped else []
    left_out += [f"{_counted(done.skipped, 'damaged episode')} skipped"] if done.skipped else []
    echo(", ".join([f"{_counted(done.steps, 'step')} of {_counted(done.episodes, 'episode')}", *left_out]))
    if done.ambiguous:
        ends = f"{_counted(done.ambiguous, 'end')} both terminated and timed out"
        echo(f"note: {ends}; they count as terminated, so no value is bootstrapped there")
    echo(f"data: {out}")


def _to_minari(opened: list[Any], names: tuple[str, ...], out: Path, dataset_id: str, references: Any) -> None:
    import dataclasses

    from minding.engine.data.dataset import load_dataset
    from minding.engine.data.references import carrying
    from minding.training.formats import OwnSource, export_minari

    if len(opened) != 1 or not isinstance(opened[0], OwnSource):
        raise click.UsageError(
            f"--to-minari takes one folder of recorded data, got {', '.join(names)}: convert it first"
        )
    found = load_dataset(opened[0].path, mapped=True)
    export_minari(dataclasses.replace(found, about=carrying(found.about, references)), out, dataset_id)
    echo(f"{_counted(len(found), 'step')} of {_counted(len(found.end), 'episode')}\nMinari set: {out}")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _open(source: str, env: str | None, **how: Any) -> Any:
    from minding.envs.recorded_spec import describe_environment
    from minding.training.conversion import open_source

    return open_source(source, env=None if env is None else describe_environment(env), **how)
