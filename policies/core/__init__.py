"""The parts of every policy: the root cell's surroundings, the three modes, acting, the compiled update."""
