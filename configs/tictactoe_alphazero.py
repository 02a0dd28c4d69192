"""AlphaZero on Tic-Tac-Toe, with PUCT: with search, the network never loses.

Expected: an evaluation mean of at least 0.697 against random and perfect play within 30k plies: the score of a player
who chooses randomly among the perfect moves (0.894 and 0.5). A win scores 1, a draw 0.5.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=30_000, target=0.697, final_episodes=144),
    env=dict(env_id="minding/TicTacToe-v0", collector_env_num=64),
    policy=dict(
        type="alphazero",
        learn=dict(learning_rate=2e-3, update_per_collect=8, warmup=2000),
        collect=dict(n_sample=64, sample_plies=6),
        eval=dict(freq=5_000, n_episode=144, simulations=32, opponents=["random", "minimax"]),
    ),
)

proof = dict(seeds=3)
