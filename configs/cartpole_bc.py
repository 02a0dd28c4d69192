"""Behavioural cloning on CartPole-v1: from what a trained policy did, recorded by `minding record-data`.

Expected: at least 95 % of the return of the policy that was recorded, 500, within 2k gradient steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    exp_name="cartpole_bc",
    run=dict(max_train_iter=2_000),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="bc",
        # Logits of a clone grow large: where tanh saturates, an exported file would differ in the fifth digit.
        model=dict(activation="relu"),
        eval=dict(freq=500, n_episode=20),
        # `minding train cartpole_ppo`, then `minding record-data runs/cartpole_ppo --steps 20000`.
        other=dict(data="runs/cartpole_ppo/data"),
    ),
)
