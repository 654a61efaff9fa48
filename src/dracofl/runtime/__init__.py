"""One real peer: the protocol's cores driven by a real clock, a real network and a learner that takes its time."""
