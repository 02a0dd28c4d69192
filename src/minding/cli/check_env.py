"""`minding check-env`."""

import itertools

import click

from minding.cli.common import COUNT, bad_input, command, echo


@command("check-env", examples=("check-env CartPole-v1", "check-env my_module:MyEnv env.env_kwargs.size=5"))
@click.argument("env_id")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--steps", type=COUNT, default=1000, show_default=True, help="Number of random steps.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Time limit in seconds.",
)
def check_env(env_id: str, overrides: tuple[str, ...], steps: int, seconds: float) -> int:
    """Check whether an environment is fit for training.

    The checks are about spaces, masks, ends of episodes, exact resume, scales and speed, and include Gymnasium's
    check_env or PettingZoo's parallel_api_test. Each problem is printed as soon as it is found. Checks that the time
    limit leaves out are listed at the end.

    ENV_ID is a Gymnasium id or module:Class. KEY=VALUE sets a key of the env section, as in training, such as
    env.env_kwargs.size=5.
    """
    with bad_input():
        from minding.engine.config.compiler import fill_schema
        from minding.engine.config.options import setting_at
        from minding.envs import config_schema
        from minding.envs.check import iter_findings

        settings = fill_schema({"env": config_schema()}, {"env": {"env_id": env_id}}, overrides)
        env_cfg = setting_at(settings, "env")
        echo(f"checking {env_id} for at most {seconds:g} s (--seconds)")
        findings = iter_findings(env_cfg, steps, seconds=seconds)
        first = next(findings)
        if first.refused is not None:
            raise first.refused
    errors, warnings, left_out, only, tried = 0, 0, 0, "", ""
    for finding in itertools.chain([first], findings):
        echo(f"{finding.level:<6}{finding.text}" + (f"\n      fix: {finding.fix}" if finding.fix else ""))
        errors += finding.level == "error"
        warnings += finding.level == "warn" and not (finding.left_out or finding.tried)
        only = only or (" with env.single_instance=true" if "env.single_instance=true" in finding.fix else "")
        left_out, tried = left_out + finding.left_out, tried or finding.tried
    parts = [f"after {tried}"] * bool(tried) + [f"without {left_out} of the checks"] * bool(left_out)
    parts += [f"with {warnings} warning{'s' * (warnings > 1)}"] * bool(warnings)
    verdict = f"fit{only} {', '.join(parts)}" if parts else f"fit for training{only}"
    echo(f"{env_id}: " + (f"{errors} error{'s' * (errors > 1)}" if errors else verdict))
    return 1 if errors else 0
