"""A picture of where the recorded data of Pendulum-v1 are: ``python -m proofs.coverage [--runs FOLDER]``.

Makes the data unless that is done, and writes ``docs/images/pendulum_coverage.png``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from minding.engine.data.dataset import Dataset, load_dataset
from proofs.recordings import REFERENCES, Source
from proofs.runs import ROOT, make_data

ENV_ID = "Pendulum-v1"
_MEDIUM, _EXPERT = Source("pendulum_sac", 10_000, 3_250), Source("pendulum_sac", 10_000)
SETS = {
    "random": (Source(steps=20_000),),
    "medium": (_MEDIUM,),
    "expert": (_EXPERT,),
    "medium + expert": (_MEDIUM, _EXPERT),
    "replay": (Source("pendulum_sac"),),
}


def draw(sets: dict[str, Dataset], path: Path) -> None:
    """Above, how often each angle and velocity was seen, on one scale for all sets; below, the torques."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(sets), sharex="row", sharey="row", height_ratios=(3, 1))
    shade: Any = None
    for (name, data), (above, below) in zip(sets.items(), axes.T, strict=True):
        score = REFERENCES[ENV_ID].normalized(float(data.returns().mean()))
        above.set_title(f"{name}\n{len(data):,} steps, normalized {score:.0f}", fontsize="small")
        cos, sin, velocity = data.obs[""].T
        angle = np.degrees(np.arctan2(sin, cos))
        counts, x, y = np.histogram2d(angle, velocity, bins=(45, 40), range=((-180, 180), (-8, 8)))
        share = np.where(counts > 0, counts / len(data), np.nan).T
        shade = above.pcolormesh(x, y, share, norm=LogNorm(3e-5, 3e-2), cmap="viridis")
        above.set_xlabel("angle, degrees")
        above.set_xticks([-180, 0, 180])
        below.hist(data.action[:, 0], bins=40, range=(-2, 2), weights=np.full(len(data), 1 / len(data)))
        below.set_yscale("log")
        below.set_xlabel("torque")
    axes[0, 0].set_ylabel("velocity, rad/s")
    axes[1, 0].set_ylabel("share of steps")
    figure.colorbar(shade, ax=axes[0, :].tolist(), label="share of steps")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m proofs.coverage", description=__doc__)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder of the pages (docs)")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "proofs", help="folder of the run folders")
    args = parser.parse_args(argv)
    made = {name: load_dataset(make_data(sources, ENV_ID, args.runs)) for name, sources in SETS.items()}
    draw(made, args.docs / "images" / "pendulum_coverage.png")


if __name__ == "__main__":
    main(sys.argv[1:])
