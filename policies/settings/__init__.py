"""Settings of the algorithms, one module each with an `algorithm`, importable without MindSpore."""
