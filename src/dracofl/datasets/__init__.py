"""Data sets, real and synthetic, and their partition among the users."""
