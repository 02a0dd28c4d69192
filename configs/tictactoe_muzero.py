"""Gumbel MuZero on Tic-Tac-Toe, both sides played by the agent, which searches its own learned model.

Expected: an evaluation mean of at least 0.85 against random play within 100k plies; seed 0 ended at 0.91.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=100_000, target=0.85),
    env=dict(
        env_id="minding/TicTacToe-v0",
        env_kwargs=dict(opponent="self:6"),
        evaluator_kwargs=dict(opponent="random"),
        collector_env_num=64,
    ),
    policy=dict(
        type="muzero",
        model=dict(bins=21, bin_limit=1.0),
        learn=dict(
            gamma=1.0,
            two_players=True,
            length=9,
            nstep=5,
            train_ratio=160.0,
            update_per_collect=4,
            value_weight=1.0,
            anneal_lr=True,
        ),
        collect=dict(n_sample=64, simulations=32),
        eval=dict(n_episode=100),
        other=dict(buffer_size=30_000),
    ),
)

proof = dict(seeds=1)
