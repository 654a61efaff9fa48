"""Virtual time: the event heap, and the simulator that drives a method through a channel."""
