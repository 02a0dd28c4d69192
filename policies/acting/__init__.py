"""Acting: actors, their memory, noise and sampling, and networks in NumPy. Nothing here imports MindSpore."""
