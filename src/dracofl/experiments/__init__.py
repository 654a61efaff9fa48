"""Whole runs: the two planes together, checkpoints, pictures."""
