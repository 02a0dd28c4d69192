"""minding: a middleware-pipeline reinforcement-learning engine on MindSpore."""

__version__ = "0.1.0"
