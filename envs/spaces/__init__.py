"""Spaces of environments: actions, observations in memory, declared `info`, the agents axis."""
