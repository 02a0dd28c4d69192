"""Data that travel through a chain: trees of arrays, rows and batches, rollouts, returns."""
