"""`minding pool`."""

import click

from minding.cli.common import COUNT, RunFolder, bad_input, command, print_lines


@command(examples=("pool runs/hopper_sac", "pool runs/hopper_sac --pin 3"))
@click.argument("run", type=RunFolder())
@click.option("--pin", type=COUNT, multiple=True, metavar="N", help="Keep this version; may be given several times.")
@click.option(
    "--unpin", type=COUNT, multiple=True, metavar="N", help="Unpin this version: it may be deleted like the others."
)
def pool(run: str, pin: tuple[int, ...], unpin: tuple[int, ...]) -> None:
    """List and pin the versions of a policy that a run keeps.

    This also works while the run trains.
    A run with the setting pool.freq=N adds a version of its policy every N iterations, and with each evaluation.
    `minding eval`, `record`, `export` and `play` take one of them with --model.
    """
    with bad_input():
        from minding.engine.run.pool import ModelPool
        from minding.engine.run.run_dir import RunDir

        models = ModelPool(RunDir.open(run).models)
        for number in pin:
            models.pin(number)
        for number in unpin:
            models.unpin(number)
        # If there are no versions, this error says what to do.
        models.find("latest")
        versions = models.versions
    rows = [
        (
            str(version.number),
            f"{version.iteration:,}",
            f"{version.env_step:,}",
            "" if version.score is None else f"{version.score:.4g}",
            "yes" if version.pinned else "",
            f"{version.size / 1e6:.2f} MB" if version.path.is_file() else "missing",
        )
        for version in versions
    ]
    header = ("version", "iteration", "env step", "score", "pinned", "size")
    print_lines(f"{models.folder}: {len(versions)} versions", header, rows, long=0)
