"""The protocol, sans-IO: events in, commands out. No clock, no socket, no thread, no array library."""
