"""The process in which a run computes: MindSpore's set-up, child processes, signals, the floating-point mode."""
