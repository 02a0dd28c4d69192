"""Backends that step N environments: a loop here, worker processes, vector environments, EnvPool; and shared parts."""
