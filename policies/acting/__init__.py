"""Acting: actors, their memory, noise and draws, and networks in NumPy. Nothing here imports MindSpore."""
