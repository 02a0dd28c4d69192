"""Algorithms of other libraries, each with its counterpart here: for error messages, and for the page on coverage."""

from __future__ import annotations

from typing import NamedTuple


class Counterpart(NamedTuple):
    """The answer to another library's algorithm.

    Attributes:
      ours: value of `policy.type`; empty if there is none that is near.
      remark: settings with which it is the same; otherwise what is missing.
      same: whether it is the same algorithm, and not only the nearest one.
    """

    ours: str
    remark: str = ""
    same: bool = True


LIBRARIES: dict[str, str] = {
    "MindSpore RL": "A2C A3C AC AWAC C51 CQL COMA DDPG DoubleDQN DQN Dreamer GAIL IQL MADDPG MAPPO MCTS PG PPO QMIX "
    "SAC SARSA TD3 VDN",
    "DI-engine": "A2C ACER AlphaZero ATOC AWR BC BCO BCQ BDQ C51 CollaQ COMA CQL D4PG DDPG DDPPO DecisionTransformer "
    "DQFD DQN DREX DreamerV3 EDAC FQF GAIL GCL HAPPO HER HPPO IBC ICM IMPALA IQL IQN MADDPG MADQN MAPPO "
    "MASAC MBPO MBSAC MDQN MPDQN NGU ParametrizedDDPG PDEIL PDQN PG PlanDiffuser PPG PPO ProcedureCloning "
    "PromptAWR PromptPG PWIL QGPO QMIX QRDQN QTRAN R2D2 R2D2GTrXL R2D3 Rainbow RED RND SAC SoftQLearning "
    "SQIL SQN STEVE SVG TD3 TD3BC TD3VAE TREX VDN WQMIX",
    "XuanCe": "A2C C51 CommNet COMA DCG DDPG DoubleDQN DQN DreamerV2 DreamerV3 DRQN DuelingDQN HarmonyDream IAC IC3Net "
    "IDDPG IPPO IQL_teams ISAC MADDPG MAPPO MASAC MATD3 MFAC MFQ MPDQN NoisyDQN NPG PDQN PERDQN PG PPG PPO PPO_KL QMIX "
    "QRDQN QTRAN SAC SPDQN TarMAC TD3 VDAC VDN WQMIX",
    "Stable-Baselines3": "A2C ARS CrossQ DDPG DQN DroQ HER MaskablePPO PPO QRDQN RecurrentPPO SAC SimBa TD3 TQC TRPO",
    "Tianshou": "A2C BCQ BDQ C51 CQL CRR DDPG DiscreteBCQ DiscreteCQL DiscreteSAC DoubleDQN DQN DuelingDQN FQF GAIL "
    "HER ICM IQN NPG PERDQN PG PPO PSRL QRDQN Rainbow REDQ SAC TD3 TD3BC TRPO",
    "d3rlpy": "AWAC BC BCQ BEAR CalQL CQL CRR DDPG DecisionTransformer DiscreteBCQ DiscreteCQL DiscreteSAC DoubleDQN "
    "DQN FQE IQL NFQ PLAS PRDC ReBRAC SAC TACR TD3 TD3BC",
    "LightZero": "AlphaZero EfficientZero GumbelMuZero MCTS MuZero ReZero SampledAlphaZero SampledEfficientZero "
    "SampledMuZero SampledUniZero StochasticMuZero UniZero",
}
"""What each library has; Stable-Baselines3 with sb3-contrib and SBX. A name that stands for two things has a suffix."""

_TEAMS = "several agents, each with its own observation"
ANSWERS: dict[str, Counterpart] = {
    "A2C": Counterpart("a2c"),
    "A3C": Counterpart("a3c"),
    "AC": Counterpart("ac"),
    "ACER": Counterpart("impala", "off-policy actor-critic with truncated weights; no replay", same=False),
    "ACKTR": Counterpart("trpo", "conjugate gradients in place of Kronecker factors", same=False),
    "AlphaZero": Counterpart("alphazero"),
    "ARS": Counterpart("", "random search without gradients is missing", same=False),
    "ATOC": Counterpart("maddpg", "agents do not send messages", same=False),
    "AWAC": Counterpart("awac"),
    "AWR": Counterpart("awac", "weights from an action value, not from returns", same=False),
    "BC": Counterpart("bc"),
    "BCO": Counterpart("bc", "actions have to be recorded", same=False),
    "BCQ": Counterpart(
        "td3_bc", "stays near the recorded actions by a penalty, without a generative model", same=False
    ),
    "BDQ": Counterpart("ppo", "several discrete actions at once, by a policy gradient", same=False),
    "BEAR": Counterpart("td3_bc", "stays near the recorded actions by a penalty", same=False),
    "C51": Counterpart("c51"),
    "CalQL": Counterpart("cql", "policy.learn.calibrated=true"),
    "CollaQ": Counterpart("qmix", "without the attention over team mates", same=False),
    "COMA": Counterpart("coma"),
    "CommNet": Counterpart("mappo", "agents do not send messages", same=False),
    "CQL": Counterpart("cql"),
    "CrossQ": Counterpart("crossq"),
    "CRR": Counterpart("awac", "weights of the same form", same=False),
    "D4PG": Counterpart("ddpg", "policy.learn.nstep; TQC has a critic that is a distribution", same=False),
    "DCG": Counterpart("qmix", "no coordination graph", same=False),
    "DDPG": Counterpart("ddpg"),
    "DDPPO": Counterpart("ppo", "lanes.collectors; lanes.learners average their gradients", same=False),
    "DecisionTransformer": Counterpart("dt"),
    "DiscreteBCQ": Counterpart("discrete_cql", "a penalty in place of the constraint", same=False),
    "DiscreteCQL": Counterpart("discrete_cql"),
    "DiscreteSAC": Counterpart("discrete_sac"),
    "DoubleDQN": Counterpart("dqn", "policy.learn.double=true, the default"),
    "DQFD": Counterpart("dqn", "chain=prior_data, without the margin loss", same=False),
    "DQN": Counterpart("dqn"),
    "Dreamer": Counterpart("dreamer"),
    "DreamerV2": Counterpart("dreamer", "the third version of it"),
    "DreamerV3": Counterpart("dreamer"),
    "DREX": Counterpart("trex", "episodes are ranked by the data, not by added noise", same=False),
    "DroQ": Counterpart("redq", "policy.model.n_critics=2 policy.model.norm=critics policy.model.dropout=0.01"),
    "DRQN": Counterpart("r2d2"),
    "DuelingDQN": Counterpart("dqn", "policy.model.dueling=true"),
    "EDAC": Counterpart("edac"),
    "EfficientZero": Counterpart("muzero", "without the loss of consistent states", same=False),
    "FQE": Counterpart("", "policy.eval.fqe=true of the algorithms for recorded data"),
    "FQF": Counterpart("fqf"),
    "GAIL": Counterpart("gail"),
    "GCL": Counterpart("gail", "a discriminator in place of the cost", same=False),
    "GumbelMuZero": Counterpart("muzero"),
    "HAPPO": Counterpart("happo"),
    "HarmonyDream": Counterpart("dreamer", "fixed weights of the losses", same=False),
    "HATRPO": Counterpart("happo", "policy.learn.trust_region=true"),
    "HER": Counterpart("sac", "chain=hindsight; also DQN, TD3, DDPG"),
    "HPPO": Counterpart("ppo", "Tuple or Dict actions of choices and numbers"),
    "IAC": Counterpart("a2c", _TEAMS),
    "IBC": Counterpart("bc", "an explicit policy", same=False),
    "IC3Net": Counterpart("mappo", "agents do not send messages", same=False),
    "ICM": Counterpart("ppo", "policy.other.icm.weight; also of algorithms that learn from replay"),
    "IDDPG": Counterpart("maddpg", "policy.model.central=false"),
    "IMPALA": Counterpart("impala"),
    "IPPO": Counterpart("ippo"),
    "IQL": Counterpart("iql"),
    "IQL_teams": Counterpart("idqn"),
    "IQN": Counterpart("iqn"),
    "ISAC": Counterpart("masac", "policy.model.central=false"),
    "MADDPG": Counterpart("maddpg"),
    "MADQN": Counterpart("idqn", "agents share one network", same=False),
    "MAPPO": Counterpart("mappo"),
    "MASAC": Counterpart("masac"),
    "MaskablePPO": Counterpart("ppo", "env.info_keys=[action_mask]"),
    "MATD3": Counterpart("matd3"),
    "MBPO": Counterpart("dreamer", "learns in its world model only", same=False),
    "MBSAC": Counterpart("dreamer", "learns in its world model only", same=False),
    "MCTS": Counterpart("alphazero", "the search also plays with random playouts: see games.md"),
    "MDQN": Counterpart("dqn", "policy.learn.munchausen=0.9"),
    "MFAC": Counterpart("mappo", "a state of the whole environment in place of the mean action", same=False),
    "MFQ": Counterpart("qmix", "a state of the whole environment in place of the mean action", same=False),
    "MPDQN": Counterpart("pdqn", "policy.model.multi_pass=true"),
    "MuZero": Counterpart("muzero", "with the search of Gumbel MuZero"),
    "NFQ": Counterpart("discrete_cql", "policy.learn.alpha=0: without the penalty", same=False),
    "NGU": Counterpart("r2d2", "policy.other.rnd.weight, without episodic novelty", same=False),
    "NoisyDQN": Counterpart("rainbow", "with its other extensions turned off"),
    "NPG": Counterpart("trpo", "policy.learn.line_search=false"),
    "ParametrizedDDPG": Counterpart("pdqn", "choices by their values, not by an actor", same=False),
    "PDEIL": Counterpart("gail", "a discriminator in place of estimated densities", same=False),
    "PDQN": Counterpart("pdqn"),
    "PERDQN": Counterpart("dqn", "policy.other.replay=prioritized"),
    "PG": Counterpart("pg"),
    "PlanDiffuser": Counterpart("iql", "no diffusion model", same=False),
    "PLAS": Counterpart("td3_bc", "no generative model of actions", same=False),
    "PPG": Counterpart("ppg"),
    "PPO": Counterpart("ppo"),
    "PPO_KL": Counterpart("ppo", "policy.learn.kl_weight=1 policy.learn.clip_ratio=0.99"),
    "PRDC": Counterpart("td3_bc", "near the recorded action of the state", same=False),
    "ProcedureCloning": Counterpart("bc", "imitates actions only", same=False),
    "PromptAWR": Counterpart("awac", "no language model", same=False),
    "PromptPG": Counterpart("pg", "no language model", same=False),
    "PSRL": Counterpart("", "learning in tables is missing", same=False),
    "PWIL": Counterpart("gail", "a discriminator in place of distances", same=False),
    "QGPO": Counterpart("iql", "no diffusion model", same=False),
    "QMIX": Counterpart("qmix"),
    "QRDQN": Counterpart("qrdqn"),
    "QTRAN": Counterpart("qtran"),
    "R2D2": Counterpart("r2d2"),
    "R2D2GTrXL": Counterpart("r2d2", "policy.model.memory=gtrxl"),
    "R2D3": Counterpart("r2d2", "without demonstrations", same=False),
    "Rainbow": Counterpart("rainbow"),
    "ReBRAC": Counterpart("td3_bc", "by its switches, see its page"),
    "RecurrentPPO": Counterpart("ppo", "policy.model.memory=lstm"),
    "RED": Counterpart("gail", "a discriminator in place of a distilled network", same=False),
    "REDQ": Counterpart("redq"),
    "ReZero": Counterpart("muzero", "reanalysis by whole searches, from the root", same=False),
    "RND": Counterpart("ppo", "policy.other.rnd.weight; also of algorithms that learn from replay"),
    "SAC": Counterpart("sac"),
    "SampledAlphaZero": Counterpart("alphazero", "searches all actions", same=False),
    "SampledEfficientZero": Counterpart("dreamer", "continuous actions without search", same=False),
    "SampledMuZero": Counterpart("dreamer", "continuous actions without search", same=False),
    "SampledUniZero": Counterpart("dreamer", "continuous actions without search", same=False),
    "SARSA": Counterpart("dqn", "learns off-policy", same=False),
    "SimBa": Counterpart("sac", "policy.model.block=residual"),
    "SoftQLearning": Counterpart("discrete_sac", "with an actor", same=False),
    "SPDQN": Counterpart("pdqn", "policy.model.multi_pass=true, in one network", same=False),
    "SQIL": Counterpart("sqil", "discrete_sqil for discrete actions"),
    "SQN": Counterpart("discrete_sac", "with an actor", same=False),
    "STEVE": Counterpart("dreamer", "learns in its world model only", same=False),
    "StochasticMuZero": Counterpart("muzero", "the model is deterministic", same=False),
    "SVG": Counterpart("dreamer", "policy.learn.actor_gradient=dynamics", same=False),
    "TACR": Counterpart("td3_bc", "no sequence model", same=False),
    "TarMAC": Counterpart("mappo", "agents do not send messages", same=False),
    "TD3": Counterpart("td3"),
    "TD3BC": Counterpart("td3_bc"),
    "TD3VAE": Counterpart("pdqn", "choices and numbers as they are, not in a learned space", same=False),
    "TQC": Counterpart("tqc"),
    "TREX": Counterpart("trex"),
    "TRPO": Counterpart("trpo"),
    "UniZero": Counterpart("muzero", "no transformer over the history", same=False),
    "VDAC": Counterpart("coma", "an advantage per agent in place of the mixed value", same=False),
    "VDN": Counterpart("vdn"),
    "WQMIX": Counterpart("wqmix"),
}
"""By name, without signs. A name of a later edition of a library may be missing."""

OTHER_SPELLINGS = {
    "agent57": "NGU",
    "apex": "Rainbow",
    "apexdqn": "Rainbow",
    "appo": "IMPALA",
    "brac": "BEAR",
    "combo": "CalQL",
    "cwqmix": "WQMIX",
    "ddqn": "DoubleDQN",
    "dreamerv1": "Dreamer",
    "facmac": "MADDPG",
    "iddqn": "IQL_teams",
    "marwil": "AWR",
    "mat": "MAPPO",
    "munchausendqn": "MDQN",
    "mpo": "AWR",
    "owqmix": "WQMIX",
    "planet": "DreamerV3",
    "ppo2": "PPO",
    "qplex": "QTRAN",
    "reinforce": "PG",
    "rainbowdqn": "Rainbow",
    "tdmpc": "DreamerV3",
    "tdmpc2": "DreamerV3",
    "sacn": "EDAC",
    "vpg": "PG",
    "vtrace": "IMPALA",
}
"""Further names, in small letters, each with the name above that answers for it."""


def counterpart(name: str) -> Counterpart | None:
    """The counterpart of another library's algorithm; None for an unknown name.

    Args:
      name: as another library or a paper spells it, such as 'TD3+BC', 'td3_bc' or 'DiscreteCQL'.
    """
    bare = "".join(letter for letter in name.lower() if letter.isalnum())
    known = {each.replace("_", "").lower(): each for each in ANSWERS}
    found = OTHER_SPELLINGS.get(bare) or known.get(bare)
    return None if found is None else ANSWERS[found]
