"""Configuration: the keys, their defaults and meaning; TOML files, presets and key=value overrides."""
