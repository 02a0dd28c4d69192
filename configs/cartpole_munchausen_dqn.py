"""Munchausen DQN on CartPole-v1: balance a pole on a cart."""

from minding.configs import load_preset

main_config = load_preset("cartpole_dqn")
# Returns are of one step, because the bonus belongs to one action; so the target has to follow faster.
del main_config.policy.learn.nstep
main_config.policy.learn.update(munchausen=0.9, target=dict(freq=128))

proof = dict(seeds=3)
