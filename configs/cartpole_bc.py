"""Behavioral cloning on CartPole-v1: from the steps of a trained policy, recorded by `minding data record`.

The target is 95 % of the score of the recorded policy.
"""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_train_iter=2_000, target=475.0),
    env=dict(env_id="CartPole-v1"),
    policy=dict(
        type="bc",
        # Logits of a clone grow large: where tanh saturates, an exported file would differ in the fifth digit.
        model=dict(activation="relu"),
        eval=dict(freq=500, n_episode=20),
        # `minding train cartpole_ppo`, then `minding data record runs/cartpole_ppo --steps 20000`.
        other=dict(data="runs/cartpole_ppo/data"),
    ),
)

proof = dict(recorded=(dict(preset="cartpole_ppo", steps=20_000),))
