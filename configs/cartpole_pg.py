"""Policy gradient (REINFORCE) on CartPole-v1: balance a pole on a cart."""

from easydict import EasyDict

main_config = EasyDict(
    # Once all episodes are of equal length, full returns say only how early a step was: seeds that went on to the end
    # forgot in 3 of 5 runs what they had learned.
    run=dict(max_env_step=300_000, stop_value=490.0, target=475.0),
    # Two environments: a rollout is as long as the longest episode, and what is learned from is hardly older.
    env=dict(env_id="CartPole-v1", collector_env_num=2),
    policy=dict(type="pg", model=dict(normalize_obs=True), learn=dict(learning_rate=1e-2), eval=dict(n_episode=20)),
)
