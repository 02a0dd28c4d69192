"""What environments show and take: action spaces, observations in memory, declared `info`, the agents axis."""
