"""The long evidence, over learning, kills, crashes, faults and soaks; its figures go to docs/results."""
