"""T-REX: PPO by another name with the keys of its rewards; see also `rewards/test_trex_rewards.py`."""

from fakes import VECTOR, discrete

CONTRACT = {"trex": (VECTOR, discrete(3), {})}
ALTERNATIVES = ("policy.model.memory=gru",)
RESUMES = {"T-REX": ("CartPole-v1", ("policy.other.trex.length=8",))}
