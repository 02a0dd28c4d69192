"""The common parts of policies: base classes, acting in this and in other processes, and the interface of networks."""
