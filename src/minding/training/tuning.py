"""A search over settings: each trial is a run in its own process; Optuna chooses its settings and prunes it.

The study is a journal in the folder of the search. A trial counts as running until its process has finished, so that
the same command can continue an interrupted search.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minding.configs import compile_run
from minding.engine.config.config import Config
from minding.engine.config.options import plain, setting_at
from minding.engine.config.space import Choice
from minding.engine.config.trust import save_own
from minding.engine.errors import ConfigError, MindingError
from minding.engine.files import Folder
from minding.engine.process.commands import Command
from minding.engine.process.packages import import_extra, import_installed
from minding.engine.process.signals import SIGNALS
from minding.engine.run.curves import EVAL_RETURN, series
from minding.engine.run.metrics import read_metrics
from minding.training.run_group import Returns, StudyRuns, evaluations_of, objective

if TYPE_CHECKING:
    import optuna

_SETTINGS, _REASON, _PRUNED = "settings", "reason", "pruned"
_INTERRUPTED = tuple(code for number in SIGNALS for code in (128 + number, -number))
"""Exit codes of a process that a signal ended, either cleanly or before the process could handle signals."""
_LEAST_COMPARED = 4
"""The least number of finished trials for the importance of settings."""
_HOPELESS = 3
"""The search ends if this many trials fail before any other has ended."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """The current state of a trial."""

    number: int
    state: str
    value: float | None
    evaluations: int
    settings: tuple[str, ...]
    reason: str


class Search:
    """Chooses trials, watches them and records how they end; the folder of the study must be locked."""

    def __init__(self, runs: StudyRuns, trials: int) -> None:
        self.runs, self._trials = runs, trials
        self.commands: dict[int, Command] = {}
        self._optuna = load_optuna()
        self._study = self._open()
        self._settled: set[int] = set()
        self._seen: dict[int, tuple[int, int]] = {}

    def processes(self) -> Iterator[Command]:
        """The processes to run: first interrupted trials, then new ones, each chosen when it is requested."""
        for trial in self._unfinished():
            yield self._begin(trial.number, trial.user_attrs[_SETTINGS])
        while self._wanted():
            number, settings = self._choose()
            try:
                compile_run(self.runs.cfg, settings)
            except MindingError as error:
                self._fail(number, " ".join(str(error).split()))
                continue
            yield self._begin(number, settings)

    def _wanted(self) -> bool:
        """Records how trials ended; returns whether another trial is needed."""
        self.settle()
        return len(self._begun()) < self._trials and not self.hopeless

    def watch(self) -> None:
        """Records new evaluations, and stops trials that are worse than the others."""
        for number, command in self.commands.items():
            if not command.running:
                continue
            trial = self._trial(number)
            for _ in self._report(trial, self._returns(number)):
                if trial.should_prune():
                    trial.set_user_attr(_PRUNED, True)
                    command.end()
                    break
        self.settle()

    def settle(self) -> None:
        """Records in the study how trials ended; the next start continues a trial that a signal ended."""
        for number, command in self.commands.items():
            if command.code is None or number in self._settled:
                continue
            self._settled.add(number)
            returns = self._returns(number, always=True)
            if self.runs.finished_run(name_of(number)) is not None:
                collections.deque(self._report(self._trial(number), returns), maxlen=0)
                try:
                    self._study.tell(number, objective(returns, evaluations_of(self.runs.cfg)))
                except ConfigError as error:
                    self._fail(number, str(error))
            elif _PRUNED in self._frozen(number).user_attrs:
                self._prune(number)
            elif command.code not in _INTERRUPTED:
                self._fail(number, command.failure)

    @property
    def hopeless(self) -> bool:
        """Whether every trial fails, so that the search should end."""
        states = [trial.state for trial in self.trials]
        return states.count("failed") >= _HOPELESS and not {"done", "pruned"} & set(states)

    @property
    def trials(self) -> list[Trial]:
        """All trials that have started, by number."""
        return [self._as_now(trial) for trial in self._begun()]

    def write_best(self, cfg: Config) -> Trial | None:
        """Writes the configuration of the best trial; returns the trial, None if none is done."""
        done = [trial for trial in self.trials if trial.value is not None]
        if not done:
            return None
        best = max(done, key=lambda trial: trial.value or 0.0)
        save_own(compile_run(cfg, [*best.settings, f"exp_name={cfg.exp_name}-best"]), self.runs.best)
        return best

    def importances(self) -> dict[str, float]:
        """The share of the differences between trials that each setting explains, the largest first."""
        done = self._study.get_trials(deepcopy=False, states=(self._optuna.trial.TrialState.COMPLETE,))
        # The settings of the first trial may lie outside of the space.
        chosen = [trial for trial in done if trial.params]
        if len(chosen) < _LEAST_COMPARED or len({trial.value for trial in chosen}) < 2:
            raise ConfigError(f"expected at least {_LEAST_COMPARED} finished trials with different objectives")
        study = self._optuna.create_study(direction="maximize")
        study.add_trials(chosen)
        return dict(self._optuna.importance.get_param_importances(study))

    def _open(self) -> optuna.Study:
        optuna = self._optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        path, warmup = self.runs.journal, math.ceil(evaluations_of(self.runs.cfg) / 3)
        startup = min(5, max(3, self._trials // 3))
        try:
            _repair(path)
            storage = optuna.storages.JournalStorage(
                optuna.storages.journal.JournalFileBackend(str(path), lock_obj=_no_lock(optuna))
            )
            return optuna.create_study(
                storage=storage,
                study_name="tune",
                direction="maximize",
                load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(startup, n_warmup_steps=warmup + 1),
            )
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
        except Exception as error:  # Optuna may raise anything for a file that is not its own
            raise ConfigError(
                f"{path} is not the journal of a study ({error}): give another folder with --study"
            ) from None

    def _begun(self) -> list[Any]:
        """The trials that have settings; a trial without settings, because the search was killed, does not count."""
        return [trial for trial in self._study.get_trials(deepcopy=False) if _SETTINGS in trial.user_attrs]

    def _unfinished(self) -> list[Any]:
        state = self._optuna.trial.TrialState
        for trial in self._study.get_trials(deepcopy=False, states=(state.RUNNING,)):
            if _SETTINGS not in trial.user_attrs:
                self._study.tell(trial.number, state=state.FAIL)
            elif _PRUNED in trial.user_attrs:
                self._prune(trial.number)
        return self._study.get_trials(deepcopy=False, states=(state.RUNNING,))

    def _choose(self) -> tuple[int, list[str]]:
        """A new trial and its settings. The first trial has the configuration's own settings."""
        first = not self._begun()
        own = {path: plain(setting_at(self.runs.cfg, path)) for path in self.runs.space}
        inside = all(own[path] in values for path, values in self.runs.space.items())
        if first and inside:
            fixed = {
                path: json.dumps(own[path]) if isinstance(values, Choice) else own[path]
                for path, values in self.runs.space.items()
            }
            self._study.enqueue_trial(fixed)
        number = len(self._study.get_trials(deepcopy=False))
        # The seed follows from the trial's number, so that an interrupted search makes the same choices.
        self._study.sampler = self._optuna.samplers.TPESampler(
            seed=(self.runs.cfg.seed * 100_003 + number) % 2**32,
            n_startup_trials=min(10, max(3, self._trials // 4)),
            constant_liar=True,
        )
        trial = self._study.ask()
        settings = [] if first and not inside else [self._suggest(trial, path) for path in self.runs.space]
        trial.set_user_attr(_SETTINGS, settings)
        return trial.number, settings

    def _suggest(self, trial: optuna.Trial, path: str) -> str:
        values = self.runs.space[path]
        if isinstance(values, Choice):
            return f"{path}={trial.suggest_categorical(path, list(values.texts))}"
        draw = trial.suggest_int if values.whole else trial.suggest_float
        return f"{path}={json.dumps(draw(path, values.low, values.high, log=values.log))}"  # type: ignore[arg-type]

    def _begin(self, number: int, settings: Sequence[str]) -> Command:
        self.commands[number] = self.runs.command_of(name_of(number), settings)
        return self.commands[number]

    def _fail(self, number: int, reason: str) -> None:
        self._trial(number).set_user_attr(_REASON, reason)
        self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)

    def _prune(self, number: int) -> None:
        self._study.tell(number, state=self._optuna.trial.TrialState.PRUNED)

    def _frozen(self, number: int) -> Any:
        return self._study.get_trials(deepcopy=False)[number]

    def _trial(self, number: int) -> optuna.Trial:
        return self._optuna.trial.Trial(self._study, self._frozen(number)._trial_id)

    def _report(self, trial: optuna.Trial, returns: Returns) -> Iterator[None]:
        """Reports the evaluations that the study does not know yet; yields after each."""
        known = self._frozen(trial.number).intermediate_values
        for place in sorted(returns.keys() - known.keys()):
            trial.report(returns[place], place)
            yield

    def _returns(self, number: int, always: bool = False) -> Returns:
        """The evaluations of a trial; empty if its metrics have not changed since the last call."""
        run = self.runs.run_of(name_of(number))
        try:
            stat = None if run is None else run.metrics.stat()
        except OSError:
            stat = None
        if run is None or stat is None:
            return {}
        seen = (stat.st_mtime_ns, stat.st_size)
        if not always and self._seen.get(number) == seen:
            return {}
        self._seen[number] = seen
        try:
            clocks, values = series(read_metrics(run.metrics), EVAL_RETURN)
        except ConfigError:  # the run has only begun
            return {}
        return {int(clock) // self.runs.cfg.policy.eval.freq: float(value) for clock, value in zip(clocks, values)}

    def _as_now(self, trial: Any) -> Trial:
        state = {"COMPLETE": "done", "PRUNED": "pruned", "FAIL": "failed"}.get(trial.state.name, "unfinished")
        value = float(trial.value) if state == "done" else None
        attrs, made = trial.user_attrs, len(trial.intermediate_values)
        return Trial(trial.number, state, value, made, tuple(attrs[_SETTINGS]), attrs.get(_REASON, ""))


def name_of(number: int) -> str:
    """The name of a trial's run folder and experiment."""
    return f"trial_{number:03d}"


def load_optuna() -> Any:
    """Imports Optuna when it is first needed."""
    optuna = import_extra("optuna", "tune", "a search over settings")
    import_installed("optuna.storages.journal")
    return optuna


def _repair(path: Path) -> None:
    """Removes from a journal an incomplete last line, left by a crash, to which Optuna would append the next
    line."""
    with Folder(path.parent, follow=True) as folder:
        descriptor = folder.open(path.name, os.O_RDWR | os.O_CREAT)
    with open(descriptor, "r+b") as file:
        data = file.read()
        if not data.endswith(b"\n"):
            file.truncate(data.rfind(b"\n") + 1)


def _no_lock(optuna: Any) -> Any:
    """A lock that does nothing: the folder is locked by `RunLock`, which is released even if the process is killed."""

    class NoLock(optuna.storages.journal._file.BaseJournalFileLock):  # type: ignore[misc]
        def acquire(self) -> bool:
            return True

        def release(self) -> None:
            return None

    return NoLock()
