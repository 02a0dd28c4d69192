"""A run on disk and on screen: its folder and lock, metrics, progress, plots, timelines."""
