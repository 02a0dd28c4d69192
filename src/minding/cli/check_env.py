"""`minding check-env`."""

from __future__ import annotations

import click

from minding.cli.common import bad_input


@click.command("check-env")
@click.argument("env_id")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--steps", type=click.IntRange(min=1), default=1000, show_default=True, help="Steps to try.")
def check_env(env_id: str, overrides: tuple[str, ...], steps: int) -> int:
    """Check whether an environment is fit for training: spaces, dtypes, aliasing, ends, speed.

    ENV_ID is a Gymnasium id or module:Class. KEY=VALUE are settings of the env section, as for training, such
    as env.env_kwargs.size=5.
    """
    with bad_input():
        from minding.engine.config.compiler import fill_schema
        from minding.envs import config_schema
        from minding.envs.check import check_env as findings_of

        env_cfg = fill_schema({"env": config_schema()}, {"env": {"env_id": env_id}}, overrides)["env"]
        findings = findings_of(env_cfg, steps=steps)
        if findings[0].refused is not None:
            raise findings[0].refused
    for finding in findings:
        click.echo(f"{finding.level:<6}{finding.text}" + (f"\n      fix: {finding.fix}" if finding.fix else ""))
    errors = sum(finding.level == "error" for finding in findings)
    click.echo(f"{env_id}: " + (f"{errors} error{'s' * (errors > 1)}" if errors else "fit for training"))
    return 1 if errors else 0
