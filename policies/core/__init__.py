"""What every policy is made of: the root cell's surroundings, the three modes, acting, the compiled update."""
