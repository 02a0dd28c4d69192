"""Pure maths of reinforcement learning, one concept per function.

Axes: B batch, T time, N environments, A actions, D features, K gradient steps of one learn call.
All functions are compiled. `acting.sampling` has distributions in NumPy, and `engine.data.returns` has advantages and
returns over whole rollouts.
"""
