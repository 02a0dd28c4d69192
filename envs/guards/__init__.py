"""Guards against faults of environments: restarts, calls that hang, values that are not numbers."""
