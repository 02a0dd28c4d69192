"""The process of a run: MindSpore's set-up, child processes, signals, the floating-point mode."""
