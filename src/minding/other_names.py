"""Names of other libraries, each with its replacement in minding, for error messages.

`missing_name` answers for imports that a package of minding lacks, and `Modules` for missing modules, once ``ding`` or
``mindspore_rl`` has been renamed to ``minding`` in a script. `setting_hint` answers for settings, and `relative` for
algorithms; `ARGUMENTS` are arguments of an agent's methods,
`TASK_ARGUMENTS` and `TASK_ATTRIBUTES` those of a task. The pages docs/from_*.md list the rest.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from types import ModuleType

_LANES = "use lanes: task.start(async_mode=True), or `minding train ... --async`"
_MANAGER = "make_env_manager(cfg.env, num_envs, seed) of minding.envs; env.backend selects how they are stepped"
_POLICY = "the policy builds its network: PPO(cfg), DQN(cfg), ... of minding.policies"
_LOGGERS = "online_logger(cfg, run_dir) of minding.middleware, with run.loggers=[wandb]"

_PAGES = "the pages docs/from_*.md list the names of other libraries"

MODULES = {
    "algorithm": "algorithms are in minding.policies: from minding.policies import PPO",
    "bonus": "minding.Agent is the agent in a few lines: Agent('ppo', 'CartPole-v1')",
    "config": "compile_run and presets are in minding.configs",
    "core": "task of minding.engine runs the chain; minding.Agent is a session in a few lines",
    "data": "buffers are in minding.engine.buffers, recorded data in minding.engine.data.dataset",
    "distribution": _LANES,
    "entry": "use `minding train`, or minding.Agent and minding.training.train",
    "environment": f"any Gymnasium environment works as it is; {_MANAGER}",
    "framework": "task and contexts are in minding.engine, middleware is in minding.middleware",
    "hpc_rll": "kernels are used where they are faster, and need no import",
    "league": "past_selves of minding.middleware plays against earlier versions",
    "model": _POLICY,
    "network": _POLICY,
    "policy": "policies are in minding.policies: from minding.policies import PPO",
    "reward_model": "reward models are in minding.policies.rewards",
    "rl_utils": "losses and returns are in minding.policies.ops",
    "torch_utils": "minding runs on MindSpore; cells are in minding.policies.networks",
    "utils": "the seed is cfg.seed; online_logger in minding.middleware writes the logs",
    "worker": "collectors, learners and evaluators are middleware: minding.middleware",
    "world_model": "Dreamer of minding.policies learns a world model",
}
"""Replacements of the modules ``ding.<name>`` and ``mindspore_rl.<name>``."""

NAMES = {
    "Actor": "policy.collect_mode and policy.eval_mode, which StepCollector of minding.middleware calls",
    "Barrier": "not in this version",
    "BarrierRuntime": "not in this version",
    "BaseEnv": "any Gymnasium environment works as it is",
    "BaseEnvManagerV2": _MANAGER,
    "BaseEnvTimestep": "any Gymnasium environment works as it is, with the five values of its `step`",
    "buffer_saver": "CkptSaver of minding.middleware, which saves the buffer",
    "ContextExchanger": _LANES,
    "ddp_termination_checker": "termination_checker of minding.middleware; there is one learner",
    "DequeBuffer": "ReplayBuffer(size, policy.learn_mode.fields, seed=cfg.seed) of minding.engine.buffers",
    "ding_init": "nothing: task.start begins a run by itself",
    "DingEnvWrapper": "nothing: any Gymnasium environment works as it is",
    "ditask": _LANES,
    "EnvpoolStepCollector": "StepCollector of minding.middleware, with env.backend=envpool",
    "EnvSupervisor": _MANAGER,
    "EpsilonGreedyPolicy": "eps_greedy_handler of minding.middleware",
    "EvaluateCallback": "interaction_evaluator of minding.middleware, with policy.eval.freq",
    "EventEnum": "events are named by strings: task.on('metrics', handler)",
    "final_ctx_saver": "CkptSaver of minding.middleware",
    "GailRewardModel": "GAIL of minding.policies.rewards.gail",
    "GymEnvironment": "any Gymnasium environment works as it is",
    "HERLearner": "OffPolicyLearner of minding.middleware after her_data_enhancer",
    "ICMRewardModel": "ICM of minding.policies.rewards.icm, or policy.other.icm.weight",
    "inferencer": "a part of StepCollector and EpisodeCollector of minding.middleware",
    "interaction_evaluator_ttorch": "interaction_evaluator of minding.middleware",
    "Learner": "policy.learn_mode, which OffPolicyLearner and multistep_trainer of minding.middleware call",
    "metric_evaluator": "dataset_evaluator of minding.middleware, which measures a policy on recorded data",
    "ModelExchanger": _LANES,
    "MSRL": "task of minding.engine, which runs the chain",
    "NaiveReplayBuffer": "ReplayBuffer of minding.engine.buffers",
    "offline_data_fetcher_from_mem": "offline_data_fetcher of minding.middleware",
    "offline_logger": "online_logger of minding.middleware",
    "OfflineMemoryDataFetcher": "offline_data_fetcher of minding.middleware",
    "offpolicy_data_fetcher": "a part of OffPolicyLearner of minding.middleware",
    "Parallel": _LANES,
    "PeriodicalModelExchanger": _LANES,
    "ppof_adv_estimator": "gae_estimator of minding.middleware",
    "PPOFStepCollector": "StepCollector of minding.middleware",
    "PPOSession": "minding.Agent: Agent('ppo', 'CartPole-v1')",
    "PriorityReplayBuffer": "ReplayBuffer of minding.engine.buffers, with priority=Priority()",
    "RndRewardModel": "RND of minding.policies.rewards.rnd, or policy.other.rnd.weight",
    "rolloutor": "a part of StepCollector and EpisodeCollector of minding.middleware",
    "Session": "minding.Agent: Agent('ppo', 'CartPole-v1'), or minding.training.train",
    "set_pkg_seed": "nothing: every random stream comes from cfg.seed",
    "SubprocessEnvManagerV2": f"{_MANAGER}; here env.backend=subprocess",
    "Supervisor": _LANES,
    "Trainer": "a chain of middleware, one line per step: minding.middleware",
    "TransitionList": "a part of StepCollector and EpisodeCollector of minding.middleware",
    "TrexRewardModel": "TREX of minding.policies.rewards.trex, or the algorithm trex",
    "UniformReplayBuffer": "ReplayBuffer of minding.engine.buffers",
    "VAC": _POLICY,
    "wandb_offline_logger": _LOGGERS,
    "wandb_online_logger": _LOGGERS,
}
"""Replacements of names of DI-engine and MindSpore RL that no package here has."""

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
ARGUMENTS = {
    "callback": "use=[...] takes your own middleware",
    "deterministic": "actions are deterministic without explore=True",
    "episode_start": "reset() clears the memory at the start of an episode",
    "log_interval": "run.metrics_freq is a setting",
    "n_eval_episodes": "the number of episodes is `episodes`",
    "progress_bar": "progress= is an argument of Agent",
    "reset_num_timesteps": "leave it out: another call continues, and total= shares a schedule",
    "state": "leave it out: the agent remembers until reset()",
    "tb_log_name": "exp_name is a setting",
    "total_timesteps": "the number of steps is `steps`, as in learn(100_000)",
}
"""Arguments of the methods of Stable-Baselines3's models."""
_NO_LABELS = "there are no labels; use an `if` around task.use"
_LOCK = "omit `lock`: no two middleware of a process run at the same time, except within `parallel`"
_LOCAL = ": events stay in the run; those of lanes reach the handlers in the main process"
TASK_ARGUMENTS = {
    "n_async_workers": "n_async_workers is the number of DI-engine's threads; lanes are processes: "
    "start(async_mode=True, lanes={'collectors': 2, 'max_staleness': 1})",
    "labels": _NO_LABELS,
    "filter_labels": _NO_LABELS,
    "attach_callback": "processes are not attached to a run; resume= continues from its checkpoint",
    "lock": _LOCK,
    "only_remote": f"omit `only_remote`{_LOCAL}",
    "only_local": f"omit `only_local`{_LOCAL}",
    "ignore_timeout_exception": "omit `ignore_timeout_exception`: wait_for raises TimeoutError, to be caught",
}
"""Arguments of DI-engine's task that `Task` does not have."""
TASK_ATTRIBUTES = {
    "router": "lanes start their own processes: task.start(async_mode=True)",
    "parallel_ctx": "lanes start their own processes: task.start(async_mode=True)",
    "labels": _NO_LABELS,
    "match_labels": _NO_LABELS,
    "void": "use `lambda ctx: None`, or an `if` around task.use",
    "sync": "there is nothing to wait for: an iteration ends when all of its middleware have",
    "async_executor": "use task.parallel(...) for middleware that wait for something",
    "sequence": "use task.serial(...)",
    "use_step_wrapper": "use task.use_wrapper(...)",
    "emit_remote": f"use emit; {_LOCAL.removeprefix(': ')}",
}
"""Attributes of DI-engine's task that `Task` does not have."""


def setting_hint(name: str, known: Container[str]) -> str:
    """The setting that replaces another library's, as ``; in minding it is ...``; an empty string if there is none.

    Args:
      name: the last word of the key.
      known: the paths of all settings.
    """
    for answer in SETTINGS.get(name.lower(), ()):
        key, _, remark = answer.partition(": ")
        if key in known:
            return f"; in minding it is {key!r}{f' ({remark})' if remark else ''}"
    return ""


def relative(name: str) -> str:
    """The counterpart of another library's algorithm, as ``; the nearest relative ...``; empty for an unknown one."""
    if name in ("MlpPolicy", "CnnPolicy", "MultiInputPolicy"):
        return "; the observation decides the network: give an algorithm, such as 'ppo'"
    # Only errors need the table.
    from minding.other_algorithms import counterpart

    found = counterpart(name)
    if found is None:
        return ""
    if not found.ours:
        return f"; {found.remark}"
    if found.same:
        return f"; here it is {found.ours!r} ({found.remark})" if found.remark else f"; did you mean {found.ours!r}?"
    return f"; the nearest relative of {name} is {found.ours!r} ({found.remark})"


def missing_name(module: str, name: str) -> Exception:
    """The exception to raise for a name that a package lacks.

    For a name of another library it is an `ImportError` that names the replacement, because ``from ... import`` would
    turn an AttributeError into a bare message. For any other name it is an AttributeError.
    """
    answer = NAMES.get(name)
    if answer is None and name.endswith("Policy") and name[0].isupper() and name != "Policy":
        answer = f"policies have no suffix: {name.removesuffix('Policy')} of minding.policies, if there is one"
    if answer is None and module == "minding.policies":
        answer = relative(name).removeprefix("; ")
    if not answer:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    return ImportError(f"{module} has no {name!r}. In minding: {answer} ({_PAGES})", name=module)


class Modules:
    """Names the replacement of ``minding.<module of another library>``; called only when nothing else finds a module.

    It is not a subclass of `importlib.abc.MetaPathFinder`, because importing that class takes as long as half of
    `import minding`.
    """

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        package, _, module = fullname.partition(".")
        if package == "minding" and module in MODULES:
            raise ModuleNotFoundError(
                f"there is no module {fullname!r}. In minding: {MODULES[module]} ({_PAGES})", name=fullname
            )
