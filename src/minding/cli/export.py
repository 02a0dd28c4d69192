"""`minding export`."""

from __future__ import annotations

from pathlib import Path

import click

from minding.cli.common import GivenPath, RunFolder, bad_input, chosen_of, ckpt_option, echo, model_option, trust_option


@click.command()
@click.argument("run", type=RunFolder())
@click.option(
    "--format", "file_format", type=click.Choice(["mindir", "onnx"]), required=True, help="Format of the file."
)
@ckpt_option
@model_option
@click.option("--out", type=GivenPath(), metavar="FILE", help="The file; RUN/policy.FORMAT by default.")
@trust_option
def export(run: str, file_format: str, ckpt: str | None, model: str | None, out: str | None, trust: bool) -> None:
    """Export the agent of the run folder RUN to one file that works without minding.

    The file takes raw observations and returns actions without exploration; see docs/export.md. FILE.json describes
    its inputs and outputs.
    """
    with bad_input():
        from minding.configs import compile_run
        from minding.engine.run.run_dir import RunDir

        run_dir = RunDir.open(run, trust=trust)
        if out is not None and not out.endswith(f".{file_format}"):
            raise click.BadParameter(f"--out={out}: expected a file name that ends with .{file_format}")
        compile_run(run_dir.load_config())
        chosen = chosen_of(run_dir, ckpt, model)

    from minding import training

    made = training.export_run(run_dir, file_format, chosen, Path(out) if out else None)
    about = made.description
    echo(f"{made.path}: {about['algorithm']} on {about['env_id']}, {about['checkpoint']}")
    for kind in ("inputs", "outputs"):
        for each in about[kind]:
            shape = ", ".join(map(str, each["shape"]))
            echo(f"  {kind[:-1]:<7}{each['name']}: {each['dtype']} ({shape})")
