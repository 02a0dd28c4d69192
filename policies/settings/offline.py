"""Settings of algorithms that learn values from recorded data."""

from __future__ import annotations

from minding.engine.config.config import Config, PolicySection
from minding.engine.config.options import setting
from minding.engine.config.section import section
from minding.engine.errors import ConfigError
from minding.policies.settings import BOX, DISCRETE, EITHER, Algorithm, shared
from minding.policies.settings.replayed_critics import CriticModel


class RecordedLearn(shared.NStep, shared.UpdatesPerStep, shared.Replayed, shared.FromData, shared.Discounted):
    """From recorded data, and then from the environment (chain=prior_data)."""

    batch_size: int = setting(256, doc="recorded steps per gradient step")
    update_per_collect: int = setting(8, doc="chain=prior_data: gradient steps per iteration")
    updates_per_step: float | None = setting(
        doc="chain=prior_data: gradient steps per environment step, in calls of update_per_collect; None: one call per "
        "iteration"
    )
    warmup: int = setting(doc="chain=prior_data: transitions in the buffer before learning starts")
    nstep: int = setting(doc="chain=prior_data: steps of the n-step return")


class RecordedCollect(shared.Collect):
    n_sample: int = setting(8, doc="chain=prior_data: environment steps per iteration, over all environments together")


class RecordedReplay(shared.RewardScales, shared.DataShare, shared.Buffer, shared.Recorded):
    buffer_size: int = setting(1_000_000, doc="chain=prior_data: capacity of the replay buffer, in transitions")
    save_buffer: bool = setting(
        doc="chain=prior_data: save the replay buffer in checkpoints; otherwise a resumed run refills it"
    )


class RecordedSettings(PolicySection):
    """Settings of policies with critics that learn from recorded data and can continue in the environment."""

    model: CriticModel
    learn: RecordedLearn
    collect: RecordedCollect
    eval: shared.DataEvaluation
    other: RecordedReplay


class RegressionModel(shared.ActionDeviation, CriticModel):
    log_std: float = setting(doc="initial log standard deviation of actions")


class RegressionLearn(shared.SoftTargets, RecordedLearn):
    """Of actors that imitate recorded actions by their advantage."""

    weight_scale: float = setting(1.0, "[0, inf)", "factor of the advantage in the exponent of an action's weight")
    weight_limit: float = setting(100.0, "(0, inf)", "largest weight of an action")


class AWACSettings(RecordedSettings):
    model: RegressionModel
    learn: RegressionLearn


class SoftLearn(shared.SoftTargets, shared.EntropyInNats, shared.Temperature, RecordedLearn): ...


class CQLLearn(SoftLearn):
    actor_learning_rate: float = setting(1e-4, "(0, 1]", "learning rate of Adam for the actor and the temperature")
    conservative_weight: float = setting(
        5.0,
        "(0, inf)",
        "weight of the gap between other actions and recorded ones, or its initial value if it is learned",
    )
    n_actions: int = setting(
        10,
        "[1, 1000]",
        "number of actions per source for the gap: uniform, the policy in the state, and the policy in the next state",
    )
    lagrange: bool = setting(False, None, "learn conservative_weight so that the gap stays below lagrange_gap")
    lagrange_gap: float = setting(5.0, None, "lagrange: largest mean gap allowed")
    calibrated: bool = setting(
        False,
        None,
        "Cal-QL: the penalty lowers values of the policy's actions only down to the return that was recorded from the "
        "state on",
    )


class CQLSettings(shared.SoftSettings, RecordedSettings):
    learn: CQLLearn

    def check(self, cfg: Config) -> None:
        if self.learn.calibrated and self.other.reward != "raw":
            raise ConfigError(
                "policy.learn.calibrated=true compares values with recorded returns, but policy.other.reward="
                f"{self.other.reward} rescales the rewards that values are learned from: use policy.other.reward=raw"
            )


class DTModel(shared.Attention, shared.ActionDeviation, shared.Network):
    memory_dim: int = setting(doc="units of each layer")
    memory_length: int = setting(doc="steps that each layer remembers")
    memory_layers: int = setting(doc="layers of the transformer")
    memory_heads: int = setting(doc="heads of the attention, which divide memory_dim")
    hidden: list[int] = setting([64])
    log_std: float = setting(doc="log standard deviation of continuous actions with exploration")


class DTLearn(shared.Sequences, shared.GradNorm, shared.FromData):
    learning_rate = 1e-3
    anneal_lr = True
    batch_size: int = setting(64, doc="sequences per gradient step")
    length: int = setting(20, doc="recorded steps of a sequence")
    grad_norm = 0.25


class DTEvaluation(shared.Evaluation):
    freq = 1000
    target_return: float | None = setting(
        None, "[-1e38, 1e38]", "return that the policy is asked for; None: the best of the recorded episodes"
    )


class DTSettings(PolicySection):
    model: DTModel
    learn: DTLearn
    collect: shared.Acting
    eval: DTEvaluation
    other: shared.DataInMemory


class DiscreteCQLModel(shared.Dueling, shared.Network):
    hidden: list[int] = setting([128, 128])


class DiscreteCQLLearn(shared.GradNorm, shared.FromData, shared.Discounted):
    learning_rate = 1e-3
    batch_size = 128
    target: shared.Target = section(kind="soft")
    alpha: float = setting(1.0, "[0, inf)", "weight of the gap between all actions and the recorded ones")


class DiscreteCQLReplay(shared.RewardScales, shared.Recorded): ...


class DiscreteCQLSettings(PolicySection):
    model: DiscreteCQLModel
    learn: DiscreteCQLLearn
    collect: shared.Acting
    eval: shared.DataEvaluation
    other: DiscreteCQLReplay


class EDACModel(shared.Ensemble, CriticModel): ...


class EDACLearn(SoftLearn):
    diversity_weight: float = setting(
        0.5, "[0, inf)", "weight of the alignment of the critics' slopes at recorded actions; 0: SAC-N"
    )


class EDACSettings(shared.SoftSettings, RecordedSettings):
    model: EDACModel = section(n_critics=10)
    learn: EDACLearn

    def check(self, cfg: Config) -> None:
        if self.model.n_critics < 2 and self.learn.diversity_weight:
            raise ConfigError(
                f"policy.learn.diversity_weight={self.learn.diversity_weight:g} with policy.model.n_critics="
                f"{self.model.n_critics}: the slope of one critic has no other to differ from; use 2 critics or more, "
                "or policy.learn.diversity_weight=0"
            )


class IQLLearn(RegressionLearn):
    weight_scale = 3.0
    expectile: float = setting(
        0.7, "(0, 1)", "expectile of the recorded actions' values that estimates the value of a state"
    )


class IQLSettings(RecordedSettings):
    model: RegressionModel
    learn: IQLLearn


class TD3BCLearn(shared.TwinDelayedLearn, RecordedLearn):
    alpha: float = setting(
        2.5,
        "[0, inf)",
        "weight of the values relative to the distance to the recorded actions, divided by the mean absolute value; "
        "ReBRAC's 1 / (beta_1 A)",
    )
    critic_penalty: float = setting(
        0.0, "[0, inf)", "weight of that distance in the critics' target (ReBRAC's beta_2); 0: TD3+BC"
    )


class TD3BCCollect(shared.Noisy, RecordedCollect): ...


class TD3BCSettings(shared.TwinDelayedSettings, RecordedSettings):
    learn: TD3BCLearn
    collect: TD3BCCollect


def _recorded(name: str, class_name: str, settings: type[PolicySection], actions: tuple[str, ...]) -> Algorithm:
    return Algorithm(name, class_name, settings, actions, "offline", "train_iter", unit_box="box" in actions)


ALGORITHMS = (
    _recorded("awac", "AWAC", AWACSettings, BOX),
    _recorded("cql", "CQL", CQLSettings, BOX),
    _recorded("dt", "DecisionTransformer", DTSettings, EITHER),
    _recorded("discrete_cql", "DiscreteCQL", DiscreteCQLSettings, DISCRETE),
    _recorded("edac", "EDAC", EDACSettings, BOX),
    _recorded("iql", "IQL", IQLSettings, BOX),
    _recorded("td3_bc", "TD3BC", TD3BCSettings, BOX),
)
