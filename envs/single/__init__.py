"""Single environments: made from their settings, wrapped, and with an agents axis if they have several agents."""
