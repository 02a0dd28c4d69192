"""The zoo: trained agents that come with minding, ``python -m proofs.zoo``, at the root; continues where it stopped.

Each preset of `ZOO` is trained with several seeds, one run at a time. The run with the highest final evaluation becomes
``zoo/<preset>``, as `Agent.save` writes it. The return on the card and in ``docs/zoo.md`` is measured in episodes that
had no part in this choice. Runs are lines of JSON in ``docs/results/zoo.jsonl``, agents are in
``docs/results/zoo.json``. An agent that is there is left as it is; to make it again, remove its folder. ``--films``
films the agents that are there again, and trains nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from minding import Agent, load
from minding.configs import load_named
from minding.engine.run.run_dir import RunDir
from minding.training.evaluation import Evaluation, final_evaluation
from minding.training.film import film_episode
from minding.training.saved_agent import save_policy
from proofs import pages as proof_pages
from proofs.runs import LEARNING, ROOT, Job, Record, Results, RunFailed, run_learning
from proofs.zoo_table import FILM
from proofs.zoo_table import ZOO as NAME

ZOO = {
    "cartpole_ppo": 3,
    "cartpole_dqn": 2,
    "acrobot_ppo": 1,
    "pendulum_sac": 2,
    "pendulum_iql": 1,
    "masked_grid_ppo": 1,
    "battle_mappo": 1,
    "tictactoe_alphazero": 3,
}
"""By preset, the number of seeds."""
MOST_BYTES = 300_000
"""Of an agent's weights."""
_FRESH_SEED = 1_000_000
"""Of the episodes that are reported: no run has this seed."""


def jobs(names: Sequence[str]) -> list[Job]:
    """The runs of these presets; the first seed of each comes before the second of any."""
    runs = [(seed, name) for name in names for seed in range(ZOO[name])]
    return [Job(NAME, name, seed, LEARNING[name].env_step) for seed, name in sorted(runs, key=lambda run: run[0])]


def is_made(name: str, results: Results, zoo: Path) -> bool:
    """Whether the agent is there, and its runs had the settings that the preset has now."""
    made = results.single(NAME) or {}
    return name in made and (zoo / name).is_dir() and all(results.has(job) for job in jobs([name]))


def run_folder(job: Job, runs: Path) -> Path:
    """Where `run_learning` trains a job."""
    return runs / job.folder / job.preset


def best(records: Sequence[Record]) -> Record:
    """The record of the highest final evaluation; of equal ones that with the least spread, then the first."""
    return max(records, key=lambda record: (record["eval_mean"], -record["eval_std"], -record["seed"]))


def save(record: Record, run: Path, folder: Path) -> Record:
    """Saves the agent of a run.

    Args:
      record: of the run.
      run: its folder.
      folder: where the agent is saved, in place of an earlier one.
    Returns:
      What is said of the agent.
    Raises:
      RunFailed: its weights are too large.
    """
    with load(run) as agent:
        own = _portable(agent, record["preset"])
        episodes = final_evaluation(own.cfg, agent.policy, own.cfg.run.final_episodes, _FRESH_SEED)
        evaluation = Evaluation.of(episodes, own.cfg)
        shutil.rmtree(folder, ignore_errors=True)
        save_policy(folder, own.cfg, agent.policy, lambda: evaluation)
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if size > MOST_BYTES:
        raise RunFailed(f"{folder}: {size:,} bytes of weights, at most {MOST_BYTES:,} are wanted")
    filmed = (folder / FILM).is_file()
    low, high = evaluation.interval
    return {
        "preset": record["preset"],
        "seed": record["seed"],
        "env_id": own.cfg.env.env_id,
        "algorithm": own.cfg.policy.type,
        "mean": round(evaluation.mean, 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "episodes": len(evaluation.returns),
        "info": {name: round(value, 3) for name, value in evaluation.info.items()},
        "bytes": size,
        "film": filmed,
        **{key: record[key] for key in ("env_step", "train_iter", "seconds", "versions")},
    }


def _portable(agent: Agent, preset: str) -> Agent:
    """The agent with the settings of its preset where those of the run name folders of this machine."""
    named, cfg = load_named(preset), agent.cfg
    cfg.run.out_dir, cfg.exp_name = "runs", preset
    if "data" in named.policy.get("other", {}):
        cfg.policy.other.data = named.policy.other.data
    return agent


def film(agent: Agent, file: Path) -> None:
    """Films an episode of an agent for the zoo.

    Raises:
      RunFailed: its environment cannot be filmed.
    """
    reason = film_episode(file, agent.cfg, agent.policy)
    if reason is not None:
        raise RunFailed(f"{file}: {reason}")


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 1 when something did not run."""
    parser = argparse.ArgumentParser(prog="python -m proofs.zoo", description=__doc__)
    parser.add_argument("--only", action="append", choices=ZOO, metavar="PRESET", help=", ".join(ZOO))
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "zoo", help="folder of the run folders")
    parser.add_argument("--zoo", type=Path, default=ROOT / "zoo", help="folder of the agents (zoo)")
    parser.add_argument("--train", action="store_true", help="train what is missing, and save nothing")
    parser.add_argument("--films", action="store_true", help="film the agents that are there again, and train nothing")
    args = parser.parse_args(argv)
    if args.films:
        for name in args.only or ZOO:
            with load(args.zoo / name) as agent:
                film(agent, args.zoo / name / FILM)
        return 0
    results = Results(args.docs)
    names = [name for name in args.only or ZOO if not is_made(name, results, args.zoo)]
    for job in jobs(names):
        if results.has(job) and RunDir(run_folder(job, args.runs)).summary.is_file():
            continue
        try:
            record = run_learning(job, args.runs)
        except RunFailed as error:
            print(f"{job}: FAILED\n{error}", file=sys.stderr, flush=True)
            return 1
        results.append(NAME, record)
        print(f"{job}: {proof_pages.one_line('learning', record)}", flush=True)
    if args.train:
        return 0
    agents = dict(results.single(NAME) or {})
    for name in names:
        wanted = {job.seed: job for job in jobs([name])}
        record = best([each for each in results.of(NAME, name) if each["seed"] in wanted])
        agents[name] = {**save(record, run_folder(wanted[record["seed"]], args.runs), args.zoo / name)}
        agents[name]["seeds"] = len(wanted)
        print(f"{args.zoo / name}: {agents[name]['mean']}", flush=True)
    text = json.dumps({name: agents[name] for name in ZOO if name in agents}, indent=1)
    (args.docs / "results" / f"{NAME}.json").write_text(text + "\n", encoding="utf-8")
    proof_pages.update(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
