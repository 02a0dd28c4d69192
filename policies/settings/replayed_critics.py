"""Settings of algorithms with an actor and critics of actions that learn from replay."""

from __future__ import annotations

from minding.engine.config.config import Config, PolicySection
from minding.engine.config.options import setting
from minding.engine.config.section import section
from minding.engine.data.action_trees import COMPOSITE, number_owners
from minding.engine.errors import ConfigError, SpaceError
from minding.policies.settings import BOX, DISCRETE, Algorithm, shared

# With vectors in units of their running deviation (`normalize_obs`), tasks of any scale are learned.


class CriticModel(shared.Blocks, shared.CriticNetwork):
    hidden: list[int] = setting([256, 256])


class CriticLearn(shared.SoftTargets, shared.OffPolicyLearn):
    learning_rate = 1e-3


class CriticCollect(shared.RandomSteps, shared.Collect): ...


class CriticReplay(shared.Novelty, shared.PriorData, shared.Replay):
    buffer_size = 1_000_000


class GoalReplay(shared.Hindsight, CriticReplay): ...


class CriticSettings(PolicySection):
    """Settings of policies with critics that learn from replay."""

    model: CriticModel
    learn: shared.OffPolicyLearn
    collect: CriticCollect
    eval: shared.Evaluation
    other: shared.Replay


class NoisyCollect(shared.Noisy, CriticCollect): ...


class GradientStepTargets(CriticLearn):
    tau: float = setting(doc="weight of the online networks in the moving average of the targets, per gradient step")


class DDPGSettings(shared.DeterministicSettings, CriticSettings):
    model = section(normalize_obs=True)
    learn: GradientStepTargets
    collect: NoisyCollect = section(noise=section(kind="ou", sigma=0.2))
    other: GoalReplay


class TD3Learn(shared.TwinDelayedLearn, CriticLearn): ...


class TD3Settings(shared.TwinDelayedSettings, CriticSettings):
    model = section(normalize_obs=True)
    learn: TD3Learn
    collect: NoisyCollect
    other: GoalReplay


class SoftLearn(shared.EntropyInNats, shared.Temperature, shared.OffPolicyLearn):
    """Learning of soft actor-critics."""

    learning_rate = 3e-4


class SoftTargetsLearn(shared.SoftTargets, SoftLearn):
    tau: float = setting(doc="weight of the online critics in the moving average of the targets, per gradient step")


class SoftSettings(shared.SoftSettings, CriticSettings):
    """Settings of soft actor-critics that learn from replay."""

    learn: SoftLearn


class SACModel(shared.Augmentation, CriticModel): ...


class SACSettings(SoftSettings):
    model: SACModel = section(normalize_obs=True)
    learn: SoftTargetsLearn = section(learning_rate=1e-3)
    other: GoalReplay


class REDQModel(shared.Ensemble, CriticModel):
    n_critics = 10
    dropout: float = setting(0.0, "[0, 0.9]", "share of units that hidden layers of the critics drop while they learn")

    def check(self, cfg: Config) -> None:
        if self.dropout and not self.hidden:
            raise ConfigError(
                f"policy.model.dropout={self.dropout:g} with policy.model.hidden=[]: there is no layer that could drop "
                "units; give hidden layers, or policy.model.dropout=0"
            )


class REDQLearn(shared.Delayed, SoftTargetsLearn):
    target_subset: int = setting(
        2, "[1, 100]", "critics of which the smallest value is the target, drawn again for each gradient step"
    )
    policy_delay: int = setting(20, doc="critic updates per update of the actor")
    update_per_collect = 160


class REDQSettings(SoftSettings):
    model: REDQModel = section(normalize_obs=True)
    learn: REDQLearn
    other: GoalReplay

    def check(self, cfg: Config) -> None:
        subset, critics = self.learn.target_subset, self.model.n_critics
        if subset > critics:
            raise ConfigError(
                f"policy.learn.target_subset={subset} exceeds policy.model.n_critics={critics}: the subset is drawn "
                "from these critics"
            )


class CrossQModel(shared.Ensemble, shared.CriticNetwork):
    """Its inputs and hidden layers have a normalization of their own."""

    hidden: list[int] = setting([256, 256])


class CrossQLearn(shared.Delayed, SoftLearn):
    """Without targets."""

    learning_rate = 1e-3
    policy_delay: int = setting(3, doc="critic updates per update of the actor")
    renorm_after: int = setting(
        100_000,
        "[0, inf)",
        "gradient steps after which batches are normalized by moving averages, not by their own moments only",
    )


class CrossQSettings(shared.SoftSettings):
    model: CrossQModel
    learn: CrossQLearn
    collect: CriticCollect
    eval: shared.Evaluation
    other: GoalReplay


class TQCModel(shared.Ensemble, CriticModel):
    n_critics = 5
    n_quantiles: int = setting(25, "[1, 1000]", "quantiles of each critic")


class TQCLearn(SoftTargetsLearn):
    dropped_quantiles: int = setting(2, "[0, 999]", "highest quantiles per critic that are left out of the target")


class TQCSettings(SoftSettings):
    model: TQCModel = section(normalize_obs=True)
    learn: TQCLearn
    other: GoalReplay

    def check(self, cfg: Config) -> None:
        quantiles, dropped = self.model.n_quantiles, self.learn.dropped_quantiles
        if dropped >= quantiles:
            raise ConfigError(
                f"policy.learn.dropped_quantiles={dropped} leaves none of policy.model.n_quantiles={quantiles}: use "
                f"{quantiles - 1} or less"
            )


class PDQNModel(CriticModel):
    multi_pass: bool = setting(
        False, None, "compute the value of a choice with its own parameters only (MP-DQN); needs a Box for each choice"
    )

    def check(self, cfg: Config) -> None:
        if self.multi_pass:
            try:
                number_owners(cfg.env.spec.env_action)
            except SpaceError as error:
                raise SpaceError(f"policy.model.multi_pass=true: {error}; set it to false") from None


class PDQNReplay(shared.Exploration, CriticReplay): ...


class PDQNSettings(CriticSettings):
    model: PDQNModel
    learn: GradientStepTargets
    collect: NoisyCollect
    other: PDQNReplay


class DiscreteSACModel(shared.Dueling, CriticModel):
    dueling: bool = setting(doc="critics with separate streams for state value and advantages")


class DiscreteSACLearn(shared.SoftTargets, shared.EntropyShare, shared.Temperature, shared.OffPolicyLearn):
    learning_rate = 3e-4
    tau: float = setting(doc="weight of the online critics in the moving average of the targets, per gradient step")


class DiscreteSACSettings(CriticSettings):
    model: DiscreteSACModel
    learn: DiscreteSACLearn
    other: GoalReplay


ALGORITHMS = (
    Algorithm("ddpg", "DDPG", DDPGSettings, BOX, "off_policy", unit_box=True),
    Algorithm("td3", "TD3", TD3Settings, BOX, "off_policy", unit_box=True),
    Algorithm("sac", "SAC", SACSettings, BOX, "off_policy", unit_box=True, several_learners=True),
    Algorithm("redq", "REDQ", REDQSettings, BOX, "off_policy", unit_box=True),
    Algorithm("crossq", "CrossQ", CrossQSettings, BOX, "off_policy", unit_box=True),
    Algorithm("pdqn", "PDQN", PDQNSettings, (COMPOSITE,), "off_policy", unit_box=True, choices=1),
    Algorithm("tqc", "TQC", TQCSettings, BOX, "off_policy", unit_box=True),
    Algorithm("discrete_sac", "DiscreteSAC", DiscreteSACSettings, DISCRETE, "off_policy"),
)
