"""AlphaZero on Tic-Tac-Toe, with PUCT: a network that, with search, never loses.

Expected: a mean score of 0.74 against random and perfect play (a win scores 1, a draw 0.5) within 30k plies.
"""

from minding.engine import Config

main_config = Config(
    exp_name="tictactoe_alphazero",
    run=dict(max_env_step=30_000, target=0.74, final_episodes=144),
    env=dict(env_id="minding/TicTacToe-v0", collector_env_num=64),
    policy=dict(
        type="alphazero",
        model=dict(hidden=[128, 128]),
        learn=dict(learning_rate=2e-3, batch_size=256, update_per_collect=8, warmup=2000),
        collect=dict(n_sample=64, search="puct", simulations=32, sample_plies=6),
        eval=dict(freq=5_000, n_episode=144, simulations=32, opponents=["random", "minimax"], opening_plies=2),
        other=dict(buffer_size=50_000),
    ),
)

proof = dict(seeds=3)
