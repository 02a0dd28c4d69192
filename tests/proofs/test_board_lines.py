"""Lines of play are enumerated as a plain recursion does."""

import numpy as np
import pytest

from minding import training
from minding.configs import compile_run
from minding.engine.run.run_dir import RunDir
from minding.engine.search.solution import Solution
from minding.envs.games.boards.tic_tac_toe import TicTacToe
from proofs.board_lines import Lines, lines_against, lines_of_run

GAME = TicTacToe()


class FirstLegal:
    name = "first legal"

    def __call__(self, game, state, rng):
        return game.legal(state).argmax(axis=1)


class FirstOptimal:
    name = "first optimal"
    solution = Solution(GAME)

    def __call__(self, game, state, rng):
        return self.solution.optimal(state).argmax(axis=1)


def counted(state, own):
    """[won, drawn, lost] of `FirstLegal`, one position at a time."""
    total = np.zeros(3, int)
    legal = np.flatnonzero(GAME.legal(state)[0])
    for action in legal[:1] if own else legal:
        following, over, outcome = GAME.play(state, np.array([action]))
        if over[0]:
            # A ply that wins leaves -1 for the player to move next.
            total[1 if outcome[0] == 0 else (0 if own else 2)] += 1
        else:
            total += counted(following, not own)
    return total


@pytest.mark.parametrize("first", [True, False])
def test_all_lines_are_counted(first):
    found = lines_against(GAME, FirstLegal(), first)
    assert found == Lines(*counted(GAME.initial(1), first))
    assert found.lost > 0
    assert lines_against(GAME, FirstOptimal(), first).lost == 0


@pytest.mark.slow
def test_the_agent_of_the_preset_loses_no_line(tmp_path):
    cfg = compile_run("tictactoe_alphazero", ["policy.eval.freq=1000000", f"run.out_dir={tmp_path}"])
    run_dir = RunDir.create(cfg)
    training.train(cfg, run_dir, progress=False)
    for lines in lines_of_run(run_dir).values():
        assert [each.lost for each in lines] == [0, 0]
