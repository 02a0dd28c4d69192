"""Guards against faults of environments: restarts, time limits of calls, checks of values."""
