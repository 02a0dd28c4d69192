"""AIRL: PPO by another name with the keys of its rewards; see also `rewards/test_airl_rewards.py`."""

from fakes import VECTOR, space_of

CONTRACT = {"airl": (VECTOR, space_of(2), {})}
RESUMES = {"AIRL": ("CartPole-v1", ("policy.other.airl.state_only=false",))}
