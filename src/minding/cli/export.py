"""`minding export`."""

from pathlib import Path

import click

from minding.cli.common import (
    RunFolder,
    bad_input,
    check_place,
    chosen_of,
    ckpt_option,
    command,
    echo,
    model_option,
    out_option,
    trust_option,
)


@command(examples=("export runs/cartpole_ppo --format onnx", "export zoo/pendulum_sac --format mindir -o agent.mindir"))
@click.argument("run", type=RunFolder())
@click.option(
    "--format", "file_format", type=click.Choice(["mindir", "onnx"]), required=True, help="Format of the file."
)
@ckpt_option
@model_option
@out_option("FILE", "The file; RUN/policy.FORMAT by default.")
@trust_option
def export(run: str, file_format: str, ckpt: str | None, model: str | None, out: str | None, trust: bool) -> None:
    """Write an agent to one file that acts without minding.

    The file takes raw observations and returns the actions of the agent of the run folder RUN, without exploration.
    FILE.json describes its inputs and outputs; `minding docs export` says how to load it.
    """
    with bad_input():
        from minding.configs import compile_saved
        from minding.engine.run.run_dir import RunDir

        run_dir = RunDir.open(run, trust=trust)
        if out is not None and not out.endswith(f".{file_format}"):
            raise click.BadParameter(f"--out={out}: expected a file name that ends with .{file_format}")
        compile_saved(run_dir)
        chosen = chosen_of(run_dir, ckpt, model)
        check_place("file", out or run_dir.products / f"policy.{file_format}")

    from minding import training

    made = training.export_run(run_dir, file_format, chosen, Path(out) if out else None)
    about = made.description
    echo(f"{made.path}: {about['algorithm']} on {about['env_id']}, {about['checkpoint']}")
    for kind in ("inputs", "outputs"):
        for each in about[kind]:
            shape = ", ".join(map(str, each["shape"]))
            echo(f"  {kind[:-1]:<7}{each['name']}: {each['dtype']} ({shape})")
