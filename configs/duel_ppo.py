"""PPO in minding/Duel-v0: three riflemen learn against versions of themselves.

Expected: an Elo rating of at least 1150 among its own versions, the first of which has 1000, within 200k environment
steps.
"""

from easydict import EasyDict

main_config = EasyDict(
    chain="league",
    run=dict(max_env_step=200_000),
    pool=dict(freq=10),
    league=dict(opponents=["red_0", "red_1", "red_2"]),
    env=dict(env_id="minding/Duel-v0", collector_env_num=16, normalize_reward=False),
    policy=dict(
        type="ppo",
        model=dict(normalize_obs=False),
        learn=dict(n_epoch=4, n_minibatch=4, entropy_weight=0.01, value_clip=True, anneal_lr=True),
        collect=dict(n_sample=1600),
        eval=dict(freq=50_000),
    ),
)

proof = None
