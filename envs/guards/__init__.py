"""What environments may do wrong: faults and restarts, calls that hang, values that are no numbers."""
