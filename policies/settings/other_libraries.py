"""Settings and algorithms of other libraries, each with its counterpart here, for error messages; the pages
docs/from_*.md list the rest."""

from __future__ import annotations

from collections.abc import Container, Iterable

SETTINGS = {
    "action_noise": ("policy.collect.noise.sigma",),
    "activation_fn": ("policy.model.activation",),
    "batch_size": ("policy.learn.batch_size", "policy.learn.n_minibatch: a rollout's steps divided by the batch size"),
    "callback": ("use: your own middleware",),
    "clip_range": ("policy.learn.clip_ratio",),
    "clip_range_vf": ("policy.learn.value_clip: true or false",),
    "critic_coef": ("policy.learn.value_weight",),
    "discount_factor": ("policy.learn.gamma",),
    "encoder_hidden_size_list": ("policy.model.hidden",),
    "ent_coef": ("policy.learn.entropy_weight", "policy.learn.alpha: policy.learn.auto_alpha tunes it"),
    "eps_clip": ("policy.learn.clip_ratio",),
    "epsilon": ("policy.learn.clip_ratio", "policy.other.eps.start"),
    "estimation_step": ("policy.learn.nstep",),
    "eval_freq": ("policy.eval.freq: steps of the clock",),
    "exploration_final_eps": ("policy.other.eps.end",),
    "exploration_fraction": ("policy.other.eps.decay: environment steps",),
    "exploration_initial_eps": ("policy.other.eps.start",),
    "features_extractor_class": ("policy.model.encoder",),
    "gradient_steps": ("policy.learn.update_per_collect",),
    "hidden_sizes": ("policy.model.hidden",),
    "iter_times": ("policy.learn.n_epoch",),
    "learning_starts": ("policy.learn.warmup",),
    "lr": ("policy.learn.learning_rate",),
    "max_grad_norm": ("policy.learn.grad_norm",),
    "n_envs": ("env.collector_env_num",),
    "n_epochs": ("policy.learn.n_epoch",),
    "n_steps": ("policy.collect.n_sample: over all environments, n_steps times env.collector_env_num",),
    "net_arch": ("policy.model.hidden",),
    "policy_kwargs": ("policy.model.hidden: and the other settings of policy.model",),
    "replay_buffer_size": ("policy.other.buffer_size",),
    "repeat_per_collect": ("policy.learn.n_epoch",),
    "step_per_collect": ("policy.collect.n_sample",),
    "target_update_interval": ("policy.learn.target.freq: gradient steps",),
    "tensorboard_log": ("run.loggers: the log is in the run folder",),
    "total_timesteps": ("run.max_env_step", "run.max_train_iter"),
    "train_freq": ("policy.collect.n_sample: over all environments",),
    "update_per_step": ("policy.learn.updates_per_step",),
    "vec_env_cls": ("env.backend",),
    "verbose": ("run.log_freq",),
    "vf_coef": ("policy.learn.value_weight",),
}
"""Settings of Stable-Baselines3, Tianshou, DI-engine and MindSpore RL, each with the settings that replace it, of which
an algorithm has the first or another, and a remark."""
_SAME = {
    "appo": ("impala", ""),
    "calql": ("cql", "policy.learn.calibrated=true"),
    "cwqmix": ("wqmix", ""),
    "ddqn": ("dqn", "policy.learn.double=true, the default"),
    "decisiontransformer": ("dt", ""),
    "doubledqn": ("dqn", "policy.learn.double=true, the default"),
    "dreamerv1": ("dreamer", ""),
    "dreamerv2": ("dreamer", "the third version of it"),
    "dreamerv3": ("dreamer", ""),
    "droq": ("redq", "policy.model.n_critics=2 policy.model.norm=critics policy.model.dropout=0.01"),
    "drqn": ("r2d2", ""),
    "duelingdqn": ("dqn", "policy.model.dueling=true"),
    "fqe": ("", "policy.eval.fqe=true of the algorithms for recorded data"),
    "gumbelmuzero": ("muzero", ""),
    "hatrpo": ("happo", "policy.learn.trust_region=true"),
    "her": ("sac", "chain=hindsight; also DQN, TD3, DDPG"),
    "hppo": ("ppo", "Tuple or Dict actions of choices and numbers"),
    "iac": ("a2c", "several agents, each with its own observation"),
    "icm": ("ppo", "policy.other.icm.weight; also of algorithms that learn from replay"),
    "iddpg": ("maddpg", "policy.model.central=false"),
    "iddqn": ("idqn", ""),
    "iqlteams": ("idqn", ""),
    "isac": ("masac", "policy.model.central=false"),
    "maskableppo": ("ppo", "env.info_keys=[action_mask]"),
    "mcts": ("alphazero", "the search also plays with random playouts: see games.md"),
    "mdqn": ("dqn", "policy.learn.munchausen=0.9"),
    "mpdqn": ("pdqn", "policy.model.multi_pass=true"),
    "munchausendqn": ("dqn", "policy.learn.munchausen=0.9"),
    "noisydqn": ("rainbow", "with its other extensions turned off"),
    "npg": ("trpo", "policy.learn.line_search=false"),
    "owqmix": ("wqmix", ""),
    "perdqn": ("dqn", "policy.other.replay=prioritized"),
    "ppo2": ("ppo", ""),
    "ppokl": ("ppo", "policy.learn.kl_weight=1 policy.learn.clip_ratio=0.99"),
    "r2d2gtrxl": ("r2d2", "policy.model.memory=gtrxl"),
    "rainbowdqn": ("rainbow", ""),
    "rebrac": ("td3_bc", "by its switches, see its page"),
    "recurrentppo": ("ppo", "policy.model.memory=lstm"),
    "reinforce": ("pg", ""),
    "rnd": ("ppo", "policy.other.rnd.weight; also of algorithms that learn from replay"),
    "sacn": ("edac", ""),
    "simba": ("sac", "policy.model.block=residual"),
    "vpg": ("pg", ""),
    "vtrace": ("impala", ""),
}
"""Names that stand for an algorithm of minding, with the settings that make it the same."""
_NEAREST = {
    "rainbow": "apex apexdqn",
    "cql": "combo",
    "qtran": "qplex",
    "": "ars psrl",
    "alphazero": "sampledalphazero",
    "awac": "awr crr marwil mpo promptawr",
    "bc": "bco ibc procedurecloning",
    "coma": "vdac",
    "ddpg": "d4pg",
    "discrete_cql": "discretebcq nfq",
    "discrete_sac": "softqlearning sqn",
    "dqn": "dqfd sarsa",
    "dreamer": "harmonydream mbpo mbsac planet sampledefficientzero sampledmuzero sampledunizero steve svg tdmpc "
    "tdmpc2",
    "gail": "gcl pdeil pwil red",
    "idqn": "madqn",
    "impala": "acer",
    "iql": "plandiffuser qgpo",
    "maddpg": "atoc facmac",
    "mappo": "commnet ic3net mfac tarmac mat",
    "muzero": "efficientzero rezero stochasticmuzero unizero",
    "pdqn": "parametrizedddpg spdqn td3vae",
    "pg": "promptpg",
    "ppo": "bdq ddppo",
    "qmix": "collaq dcg mfq",
    "r2d2": "agent57 ngu r2d3",
    "td3_bc": "bcq bear brac plas prdc tacr",
    "trex": "drex",
    "trpo": "acktr",
}
"""Names of algorithms that are missing, by their nearest relative; docs/algorithms/coverage.md says what differs."""


def setting_hint(name: str, known: Container[str]) -> str:
    """The setting that replaces another library's, as ``; in minding it is ...``; an empty string if there is
    none."""
    for answer in SETTINGS.get(name.lower(), ()):
        key, _, remark = answer.partition(": ")
        if key in known:
            return f"; in minding it is {key!r}{f' ({remark})' if remark else ''}"
    return ""


def relative(name: str, known: Iterable[str]) -> str:
    """The counterpart of another library's algorithm, as ``; did you mean ...``; empty for an unknown one."""
    if name in ("MlpPolicy", "CnnPolicy", "MultiInputPolicy"):
        return "; the observation decides the network: give an algorithm, such as 'ppo'"
    bare = "".join(letter for letter in name.lower() if letter.isalnum())
    own = next((each for each in known if each.replace("_", "") == bare), "")
    ours, remark = _SAME.get(bare, (own, ""))
    if ours or remark:
        return f"; here it is {ours!r} ({remark})" if ours and remark else f"; {remark or f'did you mean {ours!r}?'}"
    for nearest, names in _NEAREST.items():
        if bare in names.split():
            missing = f"; {name} is missing" if not nearest else f"; the nearest relative of {name} is {nearest!r}"
            return f"{missing}: see docs/algorithms/coverage.md"
    return ""
