"""Rules of board games, one game per file; see `engine.types.BoardGame`."""
