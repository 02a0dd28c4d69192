"""Settings of algorithms that imitate an expert."""

from __future__ import annotations

from minding.engine.config.compiler import opt
from minding.engine.config.config import CollectSection, LearnSection, ModelSection
from minding.engine.config.options import WIDTH
from minding.engine.data.ranks import RANKINGS
from minding.policies.settings import ANY_ACTIONS, SINGLE_ACTIONS, Algorithm, actor_critic, groups, replayed_critics


def bc() -> groups.Schema:
    """Settings of behavioral cloning."""
    return {
        "model": {
            **groups.model([64, 64], "tanh"),
            **groups.described(
                ModelSection.options("log_std"), log_std="initial log standard deviation of continuous actions"
            ),
        },
        "learn": {
            **groups.described(
                LearnSection.options(
                    "steps_per_call", "optimizer", "on_nan", learning_rate=1e-3, batch_size=256, grad_norm=0.0
                ),
                batch_size="recorded steps per gradient step",
            ),
            **groups.anneal(True),
            "loss": opt(
                "squared_error",
                ("squared_error", "log_likelihood"),
                "loss of Box actions; other actions always use the log-likelihood",
            ),
        },
        "collect": CollectSection.options("backend"),
        "eval": groups.recorded_evaluation(),
        "other": groups.recorded(),
    }


def _rewarded(name: str, rewards: groups.Schema, batch_size: int, what: str) -> groups.Schema:
    """Settings of PPO with a reward model that learns from recorded data.

    Args:
      name: name of the model.
      rewards: its own settings.
      batch_size: the default of the key.
      what: meaning of the key `batch_size`.
    """
    shared = {
        "batch_size": opt(batch_size, "[1, 1e6]", what),
        "hidden": opt([64, 64], WIDTH, "sizes of the hidden layers of the model"),
    }
    schema = actor_critic.clipped_surrogate(groups.passes(4, 4))
    return {**schema, "other": {**groups.recorded_folder(), name: {**rewards, **shared}}}


_BOTH = "steps of the expert in each gradient step, and equally many of the agent"


def gail() -> groups.Schema:
    """GAIL: PPO whose rewards measure the similarity of its steps to an expert's."""
    rewards = {
        "reward": opt(
            "positive",
            ("positive", "negative", "logit"),
            "-log(1 - D), which favors long episodes; log D, which favors short ones; or their sum, of either sign",
        ),
        "learning_rate": opt(3e-4, "(0, 1]", "learning rate of Adam for the discriminator"),
        "n_update": opt(20, "[1, 1e5]", "gradient steps of the discriminator on each rollout"),
        "gradient_penalty": opt(
            0.0, "[0, inf)", "weight of the squared distance of its gradients' norm from 1, between both kinds of steps"
        ),
    }
    return _rewarded("gail", rewards, 128, _BOTH)


def airl() -> groups.Schema:
    """AIRL: PPO whose rewards explain an expert's steps, apart from shaping.

    There is no memory, because the model asks for the probabilities of single recorded steps.
    """
    rewards = {
        "state_only": opt(True, None, "the reward depends on the state only, and not on the action"),
        "learning_rate": opt(3e-4, "(0, 1]", "learning rate of Adam for the discriminator"),
        "n_update": opt(20, "[1, 1e5]", "gradient steps of the discriminator on each rollout"),
    }
    schema = _rewarded("airl", rewards, 128, _BOTH)
    for key in groups.memory():
        del schema["model"][key]
    return schema


def trex() -> groups.Schema:
    """T-REX: PPO whose rewards are learned from recorded episodes of different quality."""
    rewards = {
        "ranking": opt(
            "return",
            RANKINGS,
            "what ranks recorded episodes: the sums of their rewards, or their order, in which the last is the best",
        ),
        "output": opt(
            "sigmoid",
            ("sigmoid", "standardized"),
            "reward: the logistic function of the standardized one, which is above 0; or the standardized one, of "
            "either sign",
        ),
        "learning_rate": opt(3e-4, "(0, 1]", "learning rate of Adam for the model"),
        "n_update": opt(1000, "[1, 1e6]", "gradient steps of the model before the first rollout is rewarded"),
        "length": opt(50, "[1, 1e5]", "steps of the parts of episodes that are compared, if the episodes are as long"),
    }
    return _rewarded("trex", rewards, 16, "pairs of episodes in each gradient step")


def sqil() -> groups.Schema:
    """SQIL: SAC with a reward of 1 for an expert's recorded steps and of 0 for its own.

    Reddy et al., 2020, https://arxiv.org/abs/1905.11108.
    """
    return {**replayed_critics.sac(), "other": {**groups.replay(1_000_000), **groups.prior_data()}}


def discrete_sqil() -> groups.Schema:
    """Discrete SQIL: discrete SAC with a reward of 1 for an expert's recorded steps and of 0 for its own.

    Reddy et al., 2020, https://arxiv.org/abs/1905.11108.
    """
    return {**replayed_critics.discrete_sac(), "other": {**groups.replay(1_000_000), **groups.prior_data()}}


ALGORITHMS = (
    Algorithm("bc", "BC", bc, actions=ANY_ACTIONS, chain="offline", unit="train_iter"),
    Algorithm("gail", "PPO", gail, actions=SINGLE_ACTIONS, chain="recorded_reward", variant_of="ppo"),
    Algorithm("airl", "PPO", airl, actions=SINGLE_ACTIONS, chain="recorded_reward", variant_of="ppo"),
    Algorithm("trex", "PPO", trex, actions=SINGLE_ACTIONS, chain="recorded_reward", variant_of="ppo"),
    Algorithm("sqil", "SAC", sqil, actions=("box",), chain="sqil", unit_box=True, variant_of="sac"),
    Algorithm(
        "discrete_sqil", "DiscreteSAC", discrete_sqil, actions=("discrete",), chain="sqil", variant_of="discrete_sac"
    ),
)
