"""Discrete SQIL: discrete SAC by another name; `test_sqil.py` has the tests of its chain and of its name."""

from fakes import VECTOR, discrete

CONTRACT = {"discrete_sqil": (VECTOR, discrete(3), {})}
RESUMES = {}
"""Discrete SAC's has all that it keeps, and SQIL's the data."""
