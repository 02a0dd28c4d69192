"""Stands in for `minding train` in the processes of trials; MindSpore and NumPy stay away, so that it starts at once.

A trial makes four evaluations, whose returns follow from its learning rate: the best is 1e-3. ``plan.json`` beside the
folder of the study says what else trials do, by number: ``"fails"``, ``"waits"`` for SIGTERM after three evaluations,
``"calls"`` Ctrl-C on the parent and waits, ``"kills"`` it after one evaluation, or ``"lacks"`` its last evaluation, as
a trial with long rollouts.
"""

import json
import math
import os
import re
import shutil
import signal
import sys
from pathlib import Path

ROWS = "env_step,eval/return_mean\n"


def main():
    command, settings, *options = sys.argv[1:]
    given = dict(option.split("=", 1) for option in options if "=" in option)
    assert (command, options[-2:]) == ("train", ["--resume", "--trust"])
    folder, name = Path(json.loads(given["run.out_dir"])), given["exp_name"]
    plan = json.loads((folder.parent / "plan.json").read_text()).get(str(int(name.removeprefix("trial_"))))
    rate = given.get("policy.learn.learning_rate") or re.search("learning_rate: (.*)", Path(settings).read_text())[1]
    value = -100 * abs(math.log10(float(rate)) + 3)
    with open(folder.parent / "calls", "a") as calls:
        calls.write(json.dumps([name, rate]) + "\n")
    run = folder / name
    run.mkdir(exist_ok=True)
    shutil.copy(settings, run / "config.yaml")
    if plan == "fails":
        print("minding: reward is nan\nin middleware 'StepCollector' (1 of 4), iteration 12", file=sys.stderr)
        sys.exit(1)
    if plan in ("waits", "calls"):
        signal.signal(signal.SIGTERM, lambda *_: end(run, 143, stop_reason="SIGTERM"))
    rows = [(500, -900.0), (1000, value), (1500, value + 1), (2000, value + 3)]
    made = {"kills": 1, "calls": 2, "waits": 3, "lacks": 3}.get(plan, 4)
    if plan == "lacks":
        plan = None
    if not plan:
        # Before its evaluations are seen, so that it is never pruned.
        summarize(run, stop_reason="max_env_step", eval_return=value, n_eval_episodes=3)
    text = ROWS + "".join(f"{step},{mean}\n" for step, mean in rows[:made])
    (run / "metrics.csv").write_text(text)
    print(f"{name} 1,024/2,048 (50%)  return 20.0", flush=True)
    if plan == "calls":
        os.kill(os.getppid(), signal.SIGINT)
    if plan == "kills":
        os.kill(os.getppid(), signal.SIGKILL)
    while plan:
        signal.pause()


def summarize(run, **figures):
    known = {"unit": "env_step", "env_step": 2048, "eval_std": 1.5, "wall_time": 2.0, "unsaved": False}
    (run / "summary.json").write_text(json.dumps({**known, **figures}))


def end(run, code, **figures):
    summarize(run, **figures)
    sys.stdout.flush()
    os._exit(code)
