"""Learning from replay."""

import logging
from collections.abc import Sequence

from minding.engine.buffers.limiters import Limiter
from minding.engine.chain.context import LearningContext
from minding.engine.chain.middleware import declare
from minding.engine.config.config import Config, updates_per_step
from minding.engine.data.batch import misfits
from minding.engine.types import LearnMode, LearnOutput, SampledBuffer, StateDict
from minding.middleware.collector import StepCollector
from minding.middleware.data_pusher import data_pusher
from minding.middleware.learning import Schedule, learn_from
from minding.middleware.nstep_reward_enhancer import nstep_reward_enhancer

_log = logging.getLogger("minding.learner")


@declare(
    role="learn",
    reads=("clock", "train_iter"),
    optional=("policy_lag", "train_output"),
    writes=("train_output", "train_iter"),
)
class OffPolicyLearner:
    """Draws minibatches from the buffer and performs all gradient steps of the iteration in one compiled call.

    While the buffer holds fewer than `warmup` transitions, or no whole episode if episodes are drawn, the learner does
    nothing, and logs this once. `updates_per_step` is the ratio of gradient steps to environment steps: each iteration
    makes as many calls of `update_per_collect` steps each as this ratio requires, possibly none.
    `train_ratio`, a key of some policies that learn from sequences, is the same ratio counted in replayed rows,
    ``updates_per_step * batch_size * length``. Both count from the iteration in which the buffer first holds enough;
    the count starts again when the buffer is refilled or the ratio changes.

    Reads: clock, train_iter; policy_lag if present.
    Writes: train_output (mean of each metric over the gradient steps), train_iter.
    Config: policy.learn.{batch_size, update_per_collect, updates_per_step or train_ratio and length, warmup,
      anneal_steps}, run.max_env_step or run.max_train_iter (schedules).

    Args:
      cfg: the compiled configuration.
      policy: ``policy.learn_mode``.
      buffer: the buffer, filled by a `data_pusher` upstream. It may have more fields than the policy uses, and other
        learners may share it.
      priorities: whether this learner updates the priorities of the drawn rows in a buffer that draws by priority
        (`ReplayBuffer.update`); exactly one of the learners that share a buffer does so.
    """

    # Replayed data are so old that the delay of a lane hardly matters.
    staleness = 4

    def __init__(self, cfg: Config, policy: LearnMode, buffer: SampledBuffer, *, priorities: bool = True) -> None:
        learn = cfg.policy.learn
        self._cfg, self._policy, self._buffer = cfg, policy, buffer
        self._updates, self._batch_size, self._warmup = learn.update_per_collect, learn.batch_size, learn.warmup
        self._ratio, self._ratio_key = updates_per_step(cfg)
        self._nstep = learn.nstep
        self._schedule = Schedule(cfg)
        self._said = self._warned = False
        # Clock and gradient steps from which the ratio is counted; None until the buffer holds enough.
        self._origin: tuple[int, int] | None = None
        self._sets_priorities = buffer.prioritized and priorities
        observe = getattr(policy, "observe", None)
        # Whether the policy is told of each row when it is stored.
        self._told = observe is not None
        if observe is not None:
            buffer.watch(observe)

    def requirements(self) -> Sequence[str]:
        problems = []
        if self._warmup > self._buffer.capacity:
            problems.append(
                f"policy.learn.warmup={self._warmup} exceeds the buffer's capacity {self._buffer.capacity}: it would "
                "never learn; raise policy.other.buffer_size"
            )
        limiter = self._buffer.limiter
        if limiter is not None and limiter.bounded:
            problems += never_allowed(limiter, self._cfg)
        problems += misfits(self._policy.fields, self._buffer.fields)
        if self._buffer.prioritized and not getattr(self._policy, "prioritized", False):
            problems.append(
                "the buffer draws by priority, and the policy returns none: set policy.other.replay=prioritized if the "
                "algorithm has it, or make the buffer without `priority`"
            )
        learned = getattr(self._policy, "sequences", None)
        if learned is not None and learned != self._buffer.sequences:
            problems.append(
                "the buffer samples single rows, and the policy learns from sequences: make it with `sequences`"
                if learned
                else "the buffer samples sequences, and the policy learns from single rows: make it without `sequences`"
            )
        return problems

    def clashes(self, chain: Sequence[object]) -> Sequence[str]:
        """Reports missing n-step returns, and a shared buffer whose priorities several learners set, or none."""
        wrong = self._wrong_returns(chain)
        if wrong is not None:
            return [wrong]
        sharing = [m for m in chain if isinstance(m, OffPolicyLearner) and m._buffer is self._buffer]
        if self._ratio is not None and len([m for m in chain if isinstance(m, OffPolicyLearner)]) > 1:
            return [
                f"{self._ratio_key} counts the gradient steps of all learners of the chain: "
                "set policy.learn.update_per_collect where there are several"
            ]
        setting = [m for m in sharing if m._sets_priorities]
        if not self._buffer.prioritized or sharing[0] is not self or len(setting) == 1:
            return []
        return [
            f"{len(setting) or 'none'} of the {len(sharing)} learners of its buffer set the priorities of rows, which "
            "are errors of one policy: leave priorities=True to one of them and give priorities=False to the others"
        ]

    def _wrong_returns(self, chain: Sequence[object]) -> str | None:
        """The fault of the pushed rewards; None if there is none. Policies whose rows lack the field `discount` compute
        n-step returns themselves, if they use them."""
        takes_returns = "discount" in getattr(self._policy, "fields", ())
        summed: nstep_reward_enhancer | None = None
        for member in chain:
            if isinstance(member, StepCollector):
                summed = None
            elif isinstance(member, nstep_reward_enhancer) and member.n > 1:
                summed = member
            elif isinstance(member, data_pusher) and id(member.buffer) == id(self._buffer):
                if summed is None and takes_returns and self._nstep > 1:
                    return (
                        f"policy.learn.nstep={self._nstep}, and the rewards pushed are those of single steps: put "
                        "nstep_reward_enhancer(cfg) before data_pusher, or set policy.learn.nstep=1"
                    )
                if summed is not None and not takes_returns:
                    return (
                        f"the rewards pushed are returns of {summed.n} steps, and the policy takes those of single "
                        "steps (its rows have no discount): leave nstep_reward_enhancer out"
                    )
        return None

    def __call__(self, ctx: LearningContext) -> None:
        if not self._ready():
            self._origin = None
            self._say_why(ctx)
            return
        if self._origin is None and self._ratio is not None:
            self._origin = ctx.clock, ctx.train_iter
        outputs: list[LearnOutput] = []
        for _ in range(self._calls(ctx)):
            if not self._may_draw():
                break
            outputs.append(self._learn(ctx))
        if len(outputs) > 1:
            ctx.train_output = {
                **(ctx.train_output or {}),
                **_mean(outputs),
                "grad_steps": sum(output.steps for output in outputs),
            }

    def cannot_learn(self, ctx: LearningContext) -> str | None:
        """Why the learner cannot make a gradient step now, without a new rollout; None if it can."""
        samples = self._updates * self._batch_size
        if self._ready() and self._calls(ctx) and self._may_draw():
            return None
        if not self._ready():
            why = f"waits for policy.learn.warmup={self._warmup} rows"
        elif not self._calls(ctx):
            why = f"has made the gradient steps that {self._ratio_key} allows"
        else:
            why = f"may not draw {samples} samples"
        return f"OffPolicyLearner {why} ({self._buffer.status()})"

    def _ready(self) -> bool:
        """Whether the buffer holds enough."""
        return len(self._buffer) >= self._warmup and self._buffer.ready

    def _may_draw(self) -> bool:
        """Whether the limiter of the table, if it has one, allows the samples of one call."""
        return self._buffer.can_sample(self._updates * self._batch_size)

    def _say_why(self, ctx: LearningContext) -> None:
        """Logs once when learning will start, and warns once if the buffer stays empty."""
        if not self._said:
            _log.info("learning starts when the buffer holds %d transitions", self._warmup)
            self._said = True
        if not self._warned and not len(self._buffer) and ctx.clock >= max(self._warmup, 1):
            _log.warning(
                "the learner's buffer is empty after %d environment steps, and nothing is learned yet: does a "
                "data_pusher upstream fill the same buffer? Chains of whole episodes fill it when one ends",
                ctx.clock,
            )
            self._warned = True

    def _calls(self, ctx: LearningContext) -> int:
        """The number of learn calls in this iteration."""
        if self._ratio is None:
            return 1
        clock, train_iter = self._origin or (ctx.clock, ctx.train_iter)
        due = self._ratio * (ctx.clock - clock) - (ctx.train_iter - train_iter)
        return max(0, int(due / self._updates))

    def state_dict(self) -> StateDict:
        return {"origin": self._origin, "ratio": self._ratio}

    def load_state_dict(self, state: StateDict) -> None:
        # After a change of the ratio, a lack or excess of gradient steps is not made up for.
        if state["origin"] is not None and state["ratio"] == self._ratio:
            clock, train_iter = state["origin"]
            self._origin = int(clock), int(train_iter)

    def _learn(self, ctx: LearningContext) -> LearnOutput:
        batch = self._buffer.sample(self._updates, self._batch_size)
        batch.stored = self._told
        output = learn_from(ctx, self._policy, batch, self._schedule)
        if output.priorities is not None and self._sets_priorities:
            self._buffer.update(batch, output.priorities)
        return output


def never_allowed(limiter: Limiter, cfg: Config) -> list[str]:
    """Problems, one sentence each, of an `OffPolicyLearner` with steps that its table's limiter never allows."""
    learn, problems = cfg.policy.learn, []
    if learn.warmup > limiter.rows_ahead:
        problems.append(
            f"policy.learn.warmup={learn.warmup} exceeds the {limiter.rows_ahead:g} rows that the limiter of its table "
            "allows before the first sample: lower it, or raise policy.other.table.limiter_rows"
        )
    samples, most = learn.update_per_collect * learn.batch_size, limiter.max_diff - limiter.min_diff
    if samples > most:
        problems.append(
            f"a call of the learner draws {samples} samples (policy.learn.update_per_collect x "
            f"policy.learn.batch_size), and the limiter of its table never allows more than {most:g}: draw fewer, or "
            f"set policy.other.table.{_width_key(cfg)} to at least {samples}"
        )
    ratio, key = updates_per_step(cfg)
    if ratio is not None and ratio * learn.batch_size < limiter.samples_per_insert:
        problems.append(
            f"{key} draws {ratio * learn.batch_size:g} samples per environment step, and the limiter of its table "
            f"wants {limiter.samples_per_insert:g} per row, so that inserts would stop: lower "
            "policy.other.table.samples_per_insert, or leave policy.learn.updates_per_step out"
        )
    return problems


def _width_key(cfg: Config) -> str:
    """The setting that decides how many samples the limiter of the table allows at once."""
    kind = cfg.policy.other.table.limiter
    return "limiter_rows" if kind in ("queue", "stack") else "limiter_error"


def _mean(outputs: Sequence[LearnOutput]) -> dict[str, float]:
    """The mean of each metric over the calls that report it."""
    names = dict.fromkeys(name for output in outputs for name in output.metrics)
    values = {name: [output.metrics[name] for output in outputs if name in output.metrics] for name in names}
    return {name: sum(found) / len(found) for name, found in values.items()}
