"""How policies act: actors, their memory, noise and draws, and networks in NumPy. Nothing here reaches MindSpore."""
