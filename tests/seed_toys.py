"""Stands in for `minding train` in the processes of seeds; MindSpore and NumPy stay away, so that it starts at once.

What a seed does is in ``plan.json`` beside the folder of the seeds: a return that it reaches, ``"fails"``, ``"waits"``
for SIGTERM, ``"calls"`` Ctrl-C on its parent and then waits, ``"removes"`` the folder of all
seeds, or ``"removes logs"``, ``"terminates"`` by SIGTERM as a process does that is not
ready for it, or ``"crashes"``.
"""

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path


def main():
    command, settings, *options = sys.argv[1:]
    given = dict(option.split("=", 1) for option in options if "=" in option)
    assert (command, options[-2:]) == ("train", ["--resume", "--trust"])
    folder = Path(json.loads(given["run.out_dir"]))
    seed, run = given["seed"], folder / given["exp_name"]
    plan = json.loads((folder.parent / "plan.json").read_text())[seed]
    with open(folder.parent / "calls", "a") as calls:
        calls.write(f"{seed}\n")
    run.mkdir(exist_ok=True)
    _save(run, settings, seed)
    if plan in ("waits", "calls"):
        # Before it prints: tests send the signal as soon as they read the line.
        signal.signal(signal.SIGTERM, lambda *_: _end(run, 143, stop_reason="SIGTERM"))
    print(f"{given['exp_name']} 1,024/2,048 (50%)  return 20.0", flush=True)
    if plan == "fails":
        where = "in middleware 'StepCollector' (1 of 4), iteration 3"
        sys.exit(_print_error(f"minding: environment 3, step 12: reward is nan\n{where}"))
    if plan == "crashes":
        os.kill(os.getpid(), signal.SIGKILL)
    if plan == "terminates":
        os.kill(os.getpid(), signal.SIGTERM)
    if plan in ("waits", "calls"):
        if plan == "calls":
            os.kill(os.getppid(), signal.SIGINT)
        while True:
            signal.pause()
    if plan in ("removes", "removes logs"):
        # At once: the parent makes it again while it is being removed file by file.
        gone = (folder / "logs" if plan == "removes logs" else folder).rename(folder.parent / "gone")
        shutil.rmtree(gone)
        while not (folder / "logs").exists() or not (folder / "settings.yaml").exists():
            os.sched_yield()
        # As a run does whose folder was removed.
        run.mkdir(exist_ok=True)
        _save(run, folder / "settings.yaml", seed)
        plan = 10.0
    (run / "metrics.csv").write_text(f"env_step,eval/return_mean\n0,20.0\n2048,{plan}\n")
    _end(run, 0, stop_reason="max_env_step", eval_return=plan, n_eval_episodes=100)


def _save(run, settings, seed):
    (run / "config.yaml").write_text(re.sub(r"(?m)^seed: .*", f"seed: {seed}", Path(settings).read_text()))


def _print_error(line):
    print(line, file=sys.stderr)
    return 1


def _end(run, code, **figures):
    known = {"unit": "env_step", "env_step": 2048, "eval_std": 1.5, "wall_time": 2.0, "unsaved": False}
    (run / "summary.json").write_text(json.dumps({**known, **figures}))
    sys.stdout.flush()
    os._exit(code)


def until_told():
    """Writes its number as ``started-<name>`` in a folder and waits for a file ``go`` there, or for SIGTERM."""
    folder, name = Path(sys.argv[1]), sys.argv[2]
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    (folder / f"started-{name}").write_text(str(os.getpid()))
    while not (folder / "go").exists():
        os.sched_yield()
    sys.exit(int(sys.argv[3]))
