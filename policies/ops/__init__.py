"""Pure maths of reinforcement learning, one concept per function.

Axes: B batch, T time, N environments, A actions, D features, K gradient steps of one learn call.
`sampling` works on NumPy arrays, without MindSpore; the others are compiled. Advantages and returns over whole rollouts
are in `engine.data.returns`.
"""
