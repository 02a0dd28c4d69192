"""Presets beside variants of themselves, over the same seeds: what a part of an algorithm, or a setting, is worth.

The preset as it is comes from its own learning proof, if the variants run as long.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from proofs.recordings import Source


@dataclasses.dataclass(frozen=True)
class Variant:
    """What a variant overrides, and the command line that trains it: ``python -m <program>``."""

    changes: tuple[str, ...] = ()
    program: str = "minding"


@dataclasses.dataclass(frozen=True)
class Study:
    """A preset and its variants.

    Attributes:
      preset: the name of the preset.
      doing: what the variants do with what they are named after, the head of the first column.
      variants: by name.
      seeds: how many, from 0.
      env_step: environment steps of a variant; None: those of the preset's proof, whose rows then stand beside it.
      recorded: what the data of all variants are made of, if not those of the preset.
    """

    preset: str
    doing: str
    variants: Mapping[str, Variant]
    seeds: int = 3
    env_step: int | None = None
    recorded: tuple[Source, ...] = ()


_CONSTANT = {
    f"constant {sign}1": Variant((f"chain=proofs.constant_rewards:{name}_one",))
    for sign, name in (("+", "plus"), ("-", "minus"))
}
_JUDGED = {kind: Variant((f"policy.other.gail.reward={kind}",)) for kind in ("positive", "negative", "logit")}
_SLOW, _FAST = (f"policy.learn.learning_rate={rate}" for rate in ("0.0003", "0.001"))
_LEARNED = ("policy.learn.auto_alpha=true", "policy.learn.alpha=1.0")
_FIXED = ("policy.learn.auto_alpha=false", "policy.learn.alpha=0.2")
_CARTPOLE = "env.env_id=CartPole-v1"
_LANES = "lanes.async_mode=true"
STUDIES: dict[str, Study] = {
    # The preset's own is the logit.
    "gail_acrobot": Study(
        "acrobot_gail", "rewarded by", {kind: x for kind, x in {**_JUDGED, **_CONSTANT}.items() if kind != "logit"}
    ),
    "gail_cartpole": Study(
        "acrobot_gail",
        "rewarded by",
        {kind: Variant((_CARTPOLE, *x.changes)) for kind, x in {**_JUDGED, **_CONSTANT}.items()},
        env_step=100_000,
        recorded=(Source("cartpole_ppo", 5_000),),
    ),
    # Without noisy layers the agent explores by epsilon-greedy.
    "ablation": Study(
        "acrobot_rainbow",
        "removed",
        {
            "double Q-learning": Variant(("policy.learn.double=false",)),
            "dueling streams": Variant(("policy.model.dueling=false",)),
            "n-step returns": Variant(("policy.learn.nstep=1",)),
            "prioritized replay": Variant(("policy.other.replay=uniform",)),
            "noisy networks": Variant(("policy.model.noisy=false",)),
            "return distribution": Variant(("policy.model.distributional=false",)),
        },
    ),
    "rnd": Study("deepsea_ppo_rnd", "removed", {"RND": Variant(("policy.other.rnd.weight=0.0",))}),
    "icm": Study("mountaincar_ppo_icm", "removed", {"ICM": Variant(("policy.other.icm.weight=0.0",))}, seeds=1),
    "rnd_replay": Study("mountaincar_dqn_rnd", "removed", {"RND": Variant(("policy.other.rnd.weight=0.0",))}, seeds=1),
    "trex_cartpole": Study(
        "cartpole_trex",
        "changed",
        {
            "a constant reward of 1": _CONSTANT["constant +1"],
            "rewards of `sigmoid`": Variant(("policy.other.trex.output=sigmoid",)),
        },
        seeds=2,
    ),
    "reanalysis": Study(
        "tictactoe_muzero",
        "policies learned",
        {
            name: Variant(("policy.eval.freq=10_000", f"policy.learn.reanalysis={share}"))
            for name, share in (("as recorded", 0.0), ("15 % renewed", 0.15))
        },
        seeds=1,
        env_step=30_000,
    ),
    # The paddle is 3 pixels high: it stays in sight.
    "shifts": Study(
        "pixelcatch_dqn",
        "images moved",
        {name: Variant((f"policy.model.augment={n}",)) for name, n in (("not", 0), ("by up to 2 pixels", 2))},
        seeds=1,
        env_step=16_000,
    ),
    # Each changes one thing of the paper's settings, which the preset does not have.
    "sac_steps": Study(
        "halfcheetah_sac",
        "changed",
        {
            "nothing": Variant((_SLOW, *_LEARNED)),
            "critics step first": Variant((_SLOW, *_LEARNED), "proofs.critics_first"),
            "learning rate 1e-3": Variant((_FAST, *_LEARNED)),
            "temperature 0.2, fixed": Variant((_SLOW, *_FIXED)),
        },
        env_step=100_000,
    ),
    "cartpole_lanes": Study(
        "cartpole_ppo",
        "changed",
        {
            "in lanes": Variant((_LANES,)),
            "in lanes with two shards": Variant((_LANES, "lanes.collectors=2", "lanes.shards=2")),
        },
        seeds=20,
    ),
}
