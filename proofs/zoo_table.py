"""The table of the zoo, ``docs/zoo.md`` in both languages."""

from __future__ import annotations

from proofs.runs import Record, Results

ZOO = "zoo"
"""Of the result files: ``zoo.jsonl`` has the runs, ``zoo.json`` the agents."""
FILM = "episode.gif"
_ENGLISH = {
    "head": ("agent", "an episode", "return, 95 % interval", "training"),
    "on": " on ",
    "interval": "{mean} ({low} to {high})",
    "env_step": "{:,} steps",
    "train_iter": "{:,} gradient steps",
    "seconds": "{:.0f} s",
    "seed": "1 seed",
    "seeds": "best of {} seeds",
    ",": ", ",
}
_CHINESE = {
    "head": ("智能体", "一个回合", "回报，95% 区间", "训练"),
    "on": "，环境 ",
    "interval": "{mean}（{low} 至 {high}）",
    "env_step": "{:,} 步",
    "train_iter": "{:,} 次梯度更新",
    "seconds": "{:.0f} 秒",
    "seed": "1 个随机种子",
    "seeds": "{} 个随机种子中最好的",
    ",": "，",
}


def zoo_table(results: Results, chinese: bool) -> str:
    """One row per agent."""
    agents, words = results.single(ZOO), _CHINESE if chinese else _ENGLISH
    if agents is None:
        return "Not made yet: `make zoo`.\n"
    up = "../../" if chinese else "../"
    rows = [_row(name, agent, words, up) for name, agent in agents.items()]
    head = [f"| {' | '.join(words['head'])} |", "|---|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows), ""])


def _row(name: str, agent: Record, words: Record, up: str) -> list[str]:
    unit = "env_step" if agent["env_step"] else "train_iter"
    figures = {key: _figure(agent[key], agent["mean"]) for key in ("mean", "low", "high")}
    told = "".join(f"{words[',']}`{key}` {value:.3g}" for key, value in agent["info"].items())
    training = [
        words[unit].format(agent[unit]),
        words["seconds"].format(agent["seconds"]),
        words["seed"] if agent["seeds"] == 1 else words["seeds"].format(agent["seeds"]),
    ]
    return [
        f"`zoo/{name}`{words['on']}`{agent['env_id']}`",
        f"![{name}]({up}zoo/{name}/{FILM})" if agent["film"] else "",
        words["interval"].format(**figures) + told,
        words[","].join(training),
    ]


def _figure(value: float, beside: float) -> str:
    """A return: three decimals where returns are small."""
    return f"{value:.1f}" if abs(beside) >= 10 else f"{value:.3f}"
