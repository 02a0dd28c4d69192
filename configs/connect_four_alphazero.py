"""AlphaZero on Connect Four, with residual convolutions.

Expected: an evaluation mean of at least 0.85 against random play and plain UCT of 100 and 400 simulations, within 500k
plies.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=500_000, target=0.85, final_episodes=98),
    env=dict(env_id="minding/ConnectFour-v0", collector_env_num=64),
    policy=dict(
        type="alphazero",
        model=dict(net="residual", hidden=[64]),
        learn=dict(anneal_lr=True, update_per_collect=2, warmup=4000),
        # Outcomes alone are noisy.
        collect=dict(n_sample=64, simulations=16, sample_plies=10, value_share=0.5),
        eval=dict(freq=100_000, n_episode=28, simulations=256, opponents=["random", "uct:100", "uct:400"]),
        other=dict(buffer_size=200_000),
    ),
)

proof = dict(seeds=2)
