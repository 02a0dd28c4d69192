"""Environments of our own, small enough for tests: PixelCatch, MaskedGrid, TMaze, BitFlip, RepeatPrevious."""
