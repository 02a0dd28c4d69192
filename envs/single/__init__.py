"""One environment: made from its settings, wrapped; one of several agents with an agents axis."""
