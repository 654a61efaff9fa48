"""The methods, one file each: what a network of users does, as events in and commands out."""
