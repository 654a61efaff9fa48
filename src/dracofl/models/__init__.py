"""Models: how a flat vector of float32 becomes a classifier."""
