"""The packages of `make packages` in roots with only a base system, and the wheels of `make wheel` in an empty environment."""
