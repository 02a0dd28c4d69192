"""The chain `self_play`: what it refuses before anything is built, and what it consists of."""

import pytest
from board_toys import Twig

from minding.configs import compile_run
from minding.configs.chains import check_chain, get_chain
from minding.engine import Config
from minding.engine.errors import ConfigError, ShapeError
from minding.engine.search import solution
from minding.envs.games.board import ConnectFourEnv, TicTacToeEnv


class WithoutRules(TicTacToeEnv):
    def __init__(self):
        super().__init__()
        self.game = None


class OtherRules(TicTacToeEnv):
    def __init__(self):
        super().__init__()
        self.game = Twig()


def settings(env_id="minding/TicTacToe-v0", algorithm="alphazero", *overrides):
    return compile_run(Config(chain="self_play", env={"env_id": env_id}, policy={"type": algorithm}), overrides)


@pytest.mark.parametrize(
    ("env_id", "algorithm", "override", "message"),
    [
        ("CartPole-v1", "alphazero", "seed=0", "env_id='CartPole-v1' has no rules"),
        ("test_self_play_chain:WithoutRules", "alphazero", "seed=0", "no attribute `game`"),
        ("test_self_play_chain:OtherRules", "alphazero", "seed=0", "its `game` has no 'planes'"),
        ("minding/TicTacToe-v0", "dqn", "seed=0", r"policy\.type='dqn': the chain reads policy\.collect\.search"),
        ("minding/TicTacToe-v0", "alphazero", "policy.eval.opponents=[mini]", r"opponents=.mini. is unknown; did"),
        ("minding/TicTacToe-v0", "alphazero", "policy.eval.opponents=[]", "expected at least one, such as random"),
        ("minding/TicTacToe-v0", "alphazero", "policy.eval.opening_plies=9", "no game of TicTacToe"),
        ("minding/TicTacToe-v0", "alphazero", "policy.eval.opponents=[random,uct:5,random]", "'random' is named twice"),
    ],
)
def test_what_cannot_play_itself_is_refused_before_anything_is_built(env_id, algorithm, override, message):
    with pytest.raises(ConfigError, match=message):
        check_chain(settings(env_id, algorithm, override))


def test_planes_that_a_wrapper_changed_are_refused():
    cfg = settings()
    cfg.env.spec.observation["spaces"]["observation"]["shape"] = [18]
    with pytest.raises(ShapeError, match=r"observes \(18,\), and the planes of TicTacToe are \(2, 3, 3\)"):
        check_chain(cfg)


def test_it_is_the_chain_of_the_algorithm():
    cfg = compile_run("connect_four_alphazero")
    check_chain(cfg)
    assert cfg.chain == "self_play"
    assert get_chain(cfg.chain).evaluate is not None


def test_an_opponent_that_cannot_play_the_game_is_refused_before_the_first_ply(monkeypatch):
    monkeypatch.setattr(solution, "LIMIT", 2000)
    with pytest.raises(ConfigError, match=r"policy\.eval\.opponents='minimax': .* and ConnectFour has more than 2,000"):
        check_chain(settings("minding/ConnectFour-v0", "alphazero", "policy.eval.opponents=[random,minimax]"))
    with pytest.raises(ConfigError, match=r"opponent='minimax': .* and ConnectFour has more than 2,000"):
        ConnectFourEnv(opponent="minimax")
