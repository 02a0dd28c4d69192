"""DI-engine's import names, each with its replacement in minding, for scripts that were written for DI-engine.

`from_di_engine` answers for names that a package of minding lacks; `Modules` answers for missing modules, once ``ding``
has been renamed to ``minding``. docs/from_di_engine.md lists the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

_LANES = "use lanes: task.start(async_mode=True), or `minding train ... --async`"
_MANAGER = "make_env_manager(cfg.env, num_envs, seed) of minding.envs; env.backend selects how they are stepped"
_POLICY = "the policy builds its network: PPO(cfg), DQN(cfg), ... of minding.policies"
_LOGGERS = "online_logger(cfg, run_dir) of minding.middleware, with run.loggers=[wandb]"

MODULES = {
    "bonus": "minding.Agent is the agent in a few lines: Agent('ppo', 'CartPole-v1')",
    "config": "compile_run and presets are in minding.configs",
    "data": "buffers are in minding.engine.buffers, recorded data in minding.engine.data.dataset",
    "entry": "use `minding train`, or minding.Agent and minding.training.train",
    "framework": "task and contexts are in minding.engine, middleware is in minding.middleware",
    "hpc_rll": "kernels are used where they are faster, and need no import",
    "league": "past_selves of minding.middleware plays against earlier versions",
    "model": _POLICY,
    "policy": "policies are in minding.policies: from minding.policies import PPO",
    "reward_model": "reward models are in minding.policies.rewards",
    "rl_utils": "losses and returns are in minding.policies.ops",
    "torch_utils": "minding runs on MindSpore; cells are in minding.policies.networks",
    "utils": "the seed is cfg.seed; online_logger in minding.middleware writes the logs",
    "worker": "collectors, learners and evaluators are middleware: minding.middleware",
    "world_model": "there are no world models in this version",
}
"""Replacements of the modules ``ding.<name>``."""

NAMES = {
    "BarrierRuntime": "not in this version",
    "Barrier": "not in this version",
    "BaseBuffer": "the buffers of minding.engine.buffers",
    "BaseEnv": "any Gymnasium environment works as it is",
    "BaseEnvManagerV2": _MANAGER,
    "BaseEnvTimestep": "any Gymnasium environment works as it is, with the five values of its `step`",
    "ContextExchanger": _LANES,
    "DequeBuffer": "UniformBuffer(size, policy.learn_mode.fields, seed=cfg.seed) of minding.engine.buffers",
    "DingEnvWrapper": "nothing: any Gymnasium environment works as it is",
    "EnvSupervisor": _MANAGER,
    "EnvpoolStepCollector": "StepCollector of minding.middleware, with env.backend=envpool",
    "EventEnum": "events are named by strings: task.on('metrics', handler)",
    "GailRewardModel": "GAIL of minding.policies.rewards.gail",
    "HERLearner": "OffPolicyLearner of minding.middleware after her_data_enhancer",
    "ModelExchanger": _LANES,
    "NaiveReplayBuffer": "UniformBuffer of minding.engine.buffers",
    "OfflineMemoryDataFetcher": "offline_data_fetcher of minding.middleware",
    "PPOFStepCollector": "StepCollector of minding.middleware",
    "Parallel": _LANES,
    "PeriodicalModelExchanger": _LANES,
    "RndRewardModel": "RND of minding.policies.rewards.rnd, or policy.other.rnd.weight",
    "Supervisor": _LANES,
    "SubprocessEnvManagerV2": f"{_MANAGER}; here env.backend=subprocess",
    "TransitionList": "a part of StepCollector and EpisodeCollector of minding.middleware",
    "VAC": _POLICY,
    "buffer_saver": "CkptSaver of minding.middleware, which saves the buffer",
    "ddp_termination_checker": "termination_checker of minding.middleware; there is one learner",
    "ding_init": "nothing: task.start begins a run by itself",
    "ditask": _LANES,
    "final_ctx_saver": "CkptSaver of minding.middleware",
    "inferencer": "a part of StepCollector and EpisodeCollector of minding.middleware",
    "interaction_evaluator_ttorch": "interaction_evaluator of minding.middleware",
    "offline_data_fetcher_from_mem": "offline_data_fetcher of minding.middleware",
    "offline_logger": "online_logger of minding.middleware",
    "offpolicy_data_fetcher": "a part of OffPolicyLearner of minding.middleware",
    "ppof_adv_estimator": "gae_estimator of minding.middleware",
    "rolloutor": "a part of StepCollector and EpisodeCollector of minding.middleware",
    "set_pkg_seed": "nothing: every random stream comes from cfg.seed",
    "wandb_offline_logger": _LOGGERS,
    "wandb_online_logger": _LOGGERS,
}
"""Replacements of DI-engine's names that no package here has."""

_PAGE = "docs/from_di_engine.md lists the names of DI-engine"


def from_di_engine(module: str, name: str) -> Exception:
    """The exception to raise for a name that a package lacks.

    For one of DI-engine's names it is an `ImportError` that names the replacement, because ``from ... import`` would
    turn an AttributeError into a bare message. For any other name it is an AttributeError.
    """
    answer = NAMES.get(name)
    if answer is None and name.endswith("Policy") and name[0].isupper() and name != "Policy":
        answer = f"policies have no suffix: {name.removesuffix('Policy')} of minding.policies, if there is one"
    if answer is None:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    return ImportError(f"{module} has no {name!r}, a name of DI-engine. In minding: {answer} ({_PAGE})", name=module)


class Modules:
    """Names the replacement of ``minding.<module of DI-engine>``; called only when nothing else finds a module.

    It is not a subclass of `importlib.abc.MetaPathFinder`, because importing that class takes as long as half of
    `import minding`.
    """

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        package, _, module = fullname.partition(".")
        if package == "minding" and module in MODULES:
            raise ModuleNotFoundError(
                f"there is no module {fullname!r}, a name of DI-engine. In minding: {MODULES[module]} ({_PAGE})",
                name=fullname,
            )
