"""Learning: gradient steps and their rows, optimizers, targets, and the rules that algorithms share."""
