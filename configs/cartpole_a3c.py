"""A3C on CartPole-v1: balance a pole on a cart."""

from easydict import EasyDict

main_config = EasyDict(
    run=dict(max_env_step=500_000, target=475.0),
    lanes=dict(collectors=2, max_staleness=2),
    # With one gradient step per rollout, values near 50 are learned too slowly: a policy that forgets does not recover.
    env=dict(env_id="CartPole-v1", normalize_reward=True, reward_gamma=0.98),
    policy=dict(
        type="a3c",
        model=dict(normalize_obs=True),
        # A larger learning rate is faster, but collapses when the data are a few updates old.
        learn=dict(learning_rate=1e-3, gamma=0.98),
        # Longer rollouts than the default: with 20 steps per environment, the cart of one seed in five left the track.
        collect=dict(n_sample=256),
        eval=dict(freq=20_000, n_episode=20),
    ),
)
