"""Environments of our own, small enough for tests."""
