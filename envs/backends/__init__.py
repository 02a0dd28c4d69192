"""Backends that step N environments: a loop in this process, worker processes, vector environments, EnvPool."""
