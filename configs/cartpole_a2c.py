"""A2C on CartPole-v1: balance a pole on a cart.

Expected: an evaluation mean of at least 475 of 500 within 300k environment steps (a target, not measured yet).
"""

from easydict import EasyDict

main_config = EasyDict(
    exp_name="cartpole_a2c",
    run=dict(max_env_step=300_000),
    # With one gradient step per rollout, values near 50 are learned too slowly: a policy that forgets does not recover.
    env=dict(env_id="CartPole-v1", normalize_reward=True, reward_gamma=0.98),
    policy=dict(
        type="a2c",
        model=dict(normalize_obs=True),
        learn=dict(learning_rate=1e-3, optimizer="adam", gamma=0.98),
        collect=dict(n_sample=80),
        eval=dict(freq=20_000, n_episode=20),
    ),
)

proof = dict(target=475.0)
