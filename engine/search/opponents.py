"""Players of board games, and games between them.

The strength of an opponent is a number of simulations and never depends on time. `parse` reads their names: ``random``,
``minimax``, ``uct:400``. Any object that satisfies `Opponent` is one, too, such as a `SearchPlayer` with the network of
a checkpoint.
"""

import dataclasses
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from minding.engine.errors import ConfigError, GameError, nearest
from minding.engine.search.gumbel import GumbelOptions, gumbel
from minding.engine.search.puct import PuctOptions, UctOptions, puct, random_legal
from minding.engine.search.puct import uct as search_uct
from minding.engine.search.search_tree import MOST_SIMULATIONS, Evaluate, Found, check_counts
from minding.engine.types import Array, BoardGame, State

LIMIT = 1_000_000
"""Maximum number of positions that are enumerated."""


class _Level(NamedTuple):
    """All different positions after some number of plies, and the positions to which their actions lead."""

    keys: Array
    legal: Array
    """The legal actions, bool ``(n, A)``."""
    outcome: Array
    """The outcomes of actions that end the game, for the player who moves, float64 ``(n, A)``."""
    following: Array
    """Rows of the resulting positions in the next level, int64 ``(n, A)``; -1 at the end and for illegal actions."""


class Solution:
    """Values of positions under perfect play of both players, and the actions that reach them.

    A position is enumerated, together with all that can follow, when its value is first requested; equal positions are
    enumerated once.
    """

    def __init__(self, game: BoardGame) -> None:
        self.game = game
        self._known: dict[bytes, tuple[float, Array]] = {}

    def value(self, state: State) -> Array:
        """The outcome for the player to move, 1, 0 or -1, float64 ``(n,)``."""
        return np.array([self._known[key][0] for key in self._solve(state)])

    def optimal(self, state: State) -> Array:
        """The actions with that outcome, bool ``(n, A)``."""
        return np.array([self._known[key][1] for key in self._solve(state)])

    def _solve(self, state: State) -> list[bytes]:
        keys = [bytes(key) for key in _keys(state)]
        missing = [row for row, key in enumerate(keys) if key not in self._known]
        if missing:
            self._fold(self._enumerate(tuple(part[missing] for part in state)))
        return keys

    def _enumerate(self, state: State) -> list[_Level]:
        levels: list[_Level] = []
        count = 0
        keys, first = np.unique(_keys(state), return_index=True)
        state = tuple(part[first] for part in state)
        while True:
            count += len(keys)
            if count > LIMIT:
                raise ConfigError(
                    f"minimax enumerates all positions, and {type(self.game).__name__} has more than {LIMIT:,} that "
                    "can follow; play against uct:SIMULATIONS instead"
                )
            legal = self.game.legal(state)
            rows, actions = np.nonzero(legal)
            after, over, ended = self.game.play(tuple(part[rows] for part in state), actions)
            outcome, following = np.zeros(legal.shape), np.full(legal.shape, -1)
            outcome[rows, actions] = -ended.astype(np.float64)
            levels.append(_Level(keys, legal, outcome, following))
            if over.all():
                return levels
            running = ~over
            after = tuple(part[running] for part in after)
            keys, first, place = np.unique(_keys(after), return_index=True, return_inverse=True)
            following[rows[running], actions[running]] = place.reshape(-1)
            state = tuple(part[first] for part in after)

    def _fold(self, levels: list[_Level]) -> None:
        """Finds the values from the last level to the first."""
        below = np.zeros(0)
        for level in reversed(levels):
            # An index of -1 in `following` reads the additional 0.
            worth = np.where(level.following >= 0, -np.append(below, 0.0)[level.following], level.outcome)
            worth = np.where(level.legal, worth, -np.inf)
            below = worth.max(axis=1)
            optimal = worth == below[:, None]
            for key, value, best in zip(level.keys, below.tolist(), optimal):
                self._known[bytes(key)] = value, best


def _keys(state: State) -> Array:
    """The bytes of each row of all parts, ``(n,)``."""
    n = len(state[0])
    parts = [np.ascontiguousarray(part).reshape(n, -1).view(np.uint8).reshape(n, -1) for part in state]
    joined = np.ascontiguousarray(np.concatenate(parts, axis=1))
    return joined.view(np.dtype((np.void, joined.shape[1]))).reshape(n)


class Opponent(Protocol):
    """Chooses actions in board games."""

    @property
    def name(self) -> str:
        """The name of the opponent in tables, such as ``uct:400``."""
        ...

    def __call__(self, game: BoardGame, state: State, rng: np.random.Generator) -> Array:
        """Returns legal actions, integers ``(n,)``, for n positions of unfinished games."""
        ...


def score_key(name: str) -> str:
    """The name of the score against an opponent in metrics: ``score_uct_400`` for ``uct:400``."""
    return f"score_{name.replace(':', '_')}"


@dataclasses.dataclass(frozen=True)
class _Random:
    name: str = "random"

    def __call__(self, game: BoardGame, state: State, rng: np.random.Generator) -> Array:
        return random_legal(game, state, rng)


@dataclasses.dataclass(frozen=True)
class _Uct:
    simulations: int

    @property
    def name(self) -> str:
        return f"uct:{self.simulations}"

    def __call__(self, game: BoardGame, state: State, rng: np.random.Generator) -> Array:
        return search_uct(game, state, UctOptions(self.simulations), rng).best


@dataclasses.dataclass
class _Minimax:
    name: str = "minimax"
    _solution: Solution | None = dataclasses.field(default=None, repr=False)

    def prepare(self, game: BoardGame) -> None:
        """Solves the game from its beginning; ConfigError if it is too large."""
        self._solution_of(game).value(game.initial(1))

    def _solution_of(self, game: BoardGame) -> Solution:
        if self._solution is None or self._solution.game is not game:
            self._solution = Solution(game)
        return self._solution

    def __call__(self, game: BoardGame, state: State, rng: np.random.Generator) -> Array:
        optimal = self._solution_of(game).optimal(state)
        action: Array = ((1.0 - rng.random(optimal.shape)) * optimal).argmax(axis=1)
        return action


def random() -> Opponent:
    return _Random()


def minimax() -> Opponent:
    """Plays one of the actions with the best outcome against perfect play, at random. It enumerates all positions that
    can follow, once per game: suitable for Tic-Tac-Toe, not for Connect Four."""
    return _Minimax()


def uct(simulations: int) -> Opponent:
    """Plays the action that plain UCT visits most in this number of simulations per ply."""
    check_counts(simulations=simulations)
    return _Uct(simulations)


def parse(name: str, game: BoardGame | None = None, *, key: str = "opponent") -> Opponent:
    """Returns the opponent of a name: ``random``, ``minimax`` or ``uct:SIMULATIONS``."""
    if not isinstance(name, str):
        raise ConfigError(f"{key}={name!r}: expected a name such as random, minimax or uct:400")
    kind, colon, number = name.partition(":")
    if name == "random":
        return random()
    if name == "minimax":
        perfect = _Minimax()
        try:
            if game is not None:
                perfect.prepare(game)
        except ConfigError as error:
            raise ConfigError(f"{key}={name!r}: {error}") from None
        return perfect
    if kind == "uct" and number.isdecimal() and 1 <= int(number) <= MOST_SIMULATIONS:
        return uct(int(number))
    if kind == "uct":
        raise ConfigError(
            f"{key}={name!r}: expected uct:SIMULATIONS with 1 to {MOST_SIMULATIONS} simulations, such as uct:400"
        )
    hint = nearest(kind if colon else name, ["random", "minimax", "uct"])
    raise ConfigError(f"{key}={name!r} is unknown{hint}; expected random, minimax or uct:SIMULATIONS")


def as_opponent(given: str | Opponent, game: BoardGame, key: str = "opponent") -> Opponent:
    """Returns an opponent, given itself or its name; ConfigError for anything else."""
    if isinstance(given, str):
        return parse(given, game, key=key)
    if not callable(given) or not isinstance(getattr(given, "name", None), str):
        raise ConfigError(
            f"{key}={given!r:.60}: expected a name such as uct:400, or an object that has a `name` and can be called "
            "with (game, state, rng)"
        )
    return given


def ask(
    opponent: Opponent,
    game: BoardGame,
    state: State,
    rng: np.random.Generator,
    plies: Array,
    games: Array | None = None,
) -> Array:
    """Returns an opponent's actions, int64 ``(n,)``, after checking them. Errors name the next ply, by the plies so far
    in each game, ``(n,)``, and the game by its number in `games`, ``(n,)``; None: its row."""
    n = len(state[0])
    action = np.asarray(opponent(game, state, rng))
    if action.shape != (n,) or action.dtype.kind not in "iu":
        raise GameError(
            f"opponent {opponent.name}: expected integers of shape {(n,)}, but it returned {action.dtype} of shape "
            f"{action.shape}"
        )
    inside = (action >= 0) & (action < game.actions)
    legal = inside & game.legal(state)[np.arange(n), np.where(inside, action, 0)]
    if not legal.all():
        row = int(np.flatnonzero(~legal)[0])
        where = f"{type(game).__name__}, game {row if games is None else games[row]}, ply {int(plies[row]) + 1}"
        allowed = ", ".join(map(str, np.flatnonzero(game.legal(state)[row])))
        raise GameError(f"opponent {opponent.name}: its action {action[row]} is illegal in {where}; legal: {allowed}")
    return action.astype(np.int64)


Options: TypeAlias = PuctOptions | GumbelOptions
"""Settings of a search with an evaluator; their class determines the search."""


def search(game: BoardGame, state: State, evaluate: Evaluate, options: Options, rng: np.random.Generator) -> Found:
    """Searches n positions by `puct` or `gumbel`, depending on the options."""
    if isinstance(options, PuctOptions):
        return puct(game, state, evaluate, options, rng)
    return gumbel(game, state, evaluate, options, rng)


@dataclasses.dataclass(frozen=True)
class SearchPlayer:
    """Plays the best action of a search; without noise in the options, always the same action."""

    evaluate: Evaluate
    options: Options | None
    name: str = "agent"

    def __call__(self, game: BoardGame, state: State, rng: np.random.Generator) -> Array:
        if self.options is not None:
            return search(game, state, self.evaluate, self.options, rng).best
        logits, _ = self.evaluate(state)
        action: Array = np.where(game.legal(state), logits, -np.inf).argmax(axis=1)
        return action


class Played(NamedTuple):
    """The results of n games: the outcome for the player who moved first, 1, 0 or -1, and the plies played, int64
    ``(n,)`` each."""

    outcomes: Array
    plies: Array


def match(
    game: BoardGame,
    first: str | Opponent,
    second: str | Opponent,
    state: State,
    rng: np.random.Generator,
    plies: int = 0,
) -> Played:
    """Plays n games to their end, all at once."""
    one, other = as_opponent(first, game, "first"), as_opponent(second, game, "second")
    rows = np.arange(len(state[0]))
    outcomes, lengths = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for ply in range(plies, game.longest):
        # The outcome is given for the player to move next.
        player, sign = (one, -1) if (ply - plies) % 2 == 0 else (other, 1)
        action = ask(player, game, state, rng, np.full(len(rows), ply), rows)
        state, over, outcome = game.play(state, action)
        outcomes[rows[over]], lengths[rows[over]] = sign * outcome[over], ply + 1 - plies
        rows, state = rows[~over], tuple(part[~over] for part in state)
        if not rows.size:
            return Played(outcomes, lengths)
    raise GameError(f"{type(game).__name__}: game {rows[0]} is not over after longest={game.longest} plies")
