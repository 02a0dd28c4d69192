"""Evaluation of a policy of a board game: games against opponents."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minding.engine.chain.task import Task
from minding.engine.config.config import Config
from minding.engine.errors import ConfigError
from minding.engine.search.opponents import Opponent, SearchPlayer, match, score_key
from minding.engine.seeding import SeedStreams
from minding.engine.types import Array, BoardGame, EpisodeEnd, EvalMode, State, StateDict
from minding.middleware.board_search import eval_options, judge_of, openings
from minding.middleware.evaluator import Evaluator, evaluates


@evaluates
class arena_evaluator(Evaluator):
    """Plays `n_episode` games per opponent after each multiple of `freq` on the clock, if the policy learned since.

    The policy searches without noise; see `arena`. A win scores 1, a draw 0.5, a loss 0. Opponents use the same random
    numbers in every evaluation. A signal that ends the run aborts the evaluation, which is not counted and is due again
    after a resume.

    Reads: clock, train_iter, last_eval_iter, last_eval_clock.
    Writes: eval_value (the mean score of all games), eval_output (one `EpisodeEnd` per game; the score is its return,
      and is also in its info as ``score_<opponent>``), last_eval_iter, last_eval_value, last_eval_clock.
    Config: policy.eval.{freq, n_episode, simulations, opening_plies}, policy.collect.{search, puct, gumbel}.

    Args:
      cfg: the compiled configuration.
      policy: ``policy.eval_mode``, with `predict`.
      game: the rules.
      opponents: the players to measure the policy against, see `engine.search.opponents`.
      task: the task whose signals are obeyed; the global one by default.
    """

    def __init__(
        self,
        cfg: Config,
        policy: EvalMode,
        game: BoardGame,
        opponents: Sequence[Opponent],
        *,
        task: Task[Any] | None = None,
    ) -> None:
        super().__init__(cfg, task)
        self._cfg, self._policy, self._game, self._opponents = cfg, policy, game, tuple(opponents)
        self._n_game = cfg.policy.eval.n_episode
        # A mismatch is reported before the first game.
        judge_of(cfg, policy, game, "arena_evaluator")
        opening_positions(game, cfg.policy.eval.opening_plies)

    def requirements(self) -> Sequence[str]:
        if not self._opponents:
            return ["it has no opponents: give it some, such as [random(), uct(100)]"]
        return []

    def play(self) -> list[EpisodeEnd]:
        """Plays the games of one evaluation."""
        return arena(self._cfg, self._policy, self._game, self._opponents, self._n_game, stop=self.interrupted)

    def state_dict(self) -> StateDict:
        """An empty state, because each evaluation begins with the same random numbers."""
        return {}

    def load_state_dict(self, state: StateDict) -> None: ...


class _Stopped(Exception):
    pass


def arena(
    cfg: Config,
    policy: EvalMode,
    game: BoardGame,
    opponents: Sequence[Opponent],
    n_game: int,
    *,
    stop: Callable[[], bool] = lambda: False,
) -> list[EpisodeEnd]:
    """Plays games of a policy, which searches without noise, against opponents.

    Against each opponent, the policy moves first in half of the games and second in the other half. Both halves begin
    from positions after ``policy.eval.opening_plies`` plies: an evenly spaced selection of them, or each of them in
    turn if there are more games than positions.
    """
    evaluation: Any = cfg.policy.eval
    judge = judge_of(cfg, policy, game, "arena")

    def evaluate(state: State) -> tuple[Array, Array]:
        if stop():
            raise _Stopped
        return judge(state)

    agent = SearchPlayer(evaluate, eval_options(cfg, evaluation.simulations))
    plies = int(evaluation.opening_plies)
    begun = opening_positions(game, plies)
    games: list[EpisodeEnd] = []
    try:
        for opponent in opponents:
            rng = SeedStreams(cfg.seed).generator(f"arena.{opponent.name}")
            for first, count in ((True, n_game - n_game // 2), (False, n_game // 2)):
                if not count:
                    continue
                rows = _spread(count, len(begun[0]))
                state = tuple(part[rows] for part in begun)
                one, other = (agent, opponent) if first else (opponent, agent)
                played = match(game, one, other, state, rng, plies)
                outcomes = played.outcomes if first else -played.outcomes
                name = score_key(opponent.name)
                for outcome, length in zip(outcomes.tolist(), played.plies.tolist()):
                    score = 0.5 + 0.5 * outcome
                    games.append(EpisodeEnd(len(games), score, plies + length, {name: score}))
    except _Stopped:
        return []
    return games


def opening_positions(game: BoardGame, plies: int) -> State:
    """All positions of `board_search.openings` after that many plies."""
    if plies >= game.longest or not len((state := openings(game, plies))[0]):
        raise ConfigError(
            f"policy.eval.opening_plies={plies}: no game of {type(game).__name__} runs after that many plies; lower it"
        )
    return state


def _spread(count: int, rows: int) -> Array:
    """`count` row numbers below `rows`: evenly spaced, or each number in turn if `count` is larger."""
    if count <= rows:
        return np.arange(count) * rows // count
    return np.arange(count) % rows
