"""Channels, one file each: what becomes of a transmission at each of its receivers."""
