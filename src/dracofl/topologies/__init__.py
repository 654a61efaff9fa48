"""Who sends to whom: one file a family, each a frozen dataclass that builds a graph."""
