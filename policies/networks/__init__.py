"""Networks: cells with a compiled form and, where they act, a NumPy form.

Where a constructor takes them, `spec` describes the spaces of the environment (see `envs.describe_env`) and `space` one
of them, `model` is the section `policy.model`, and `rng` draws the initial weights.
"""
