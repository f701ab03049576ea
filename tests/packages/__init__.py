"""The packages of `make packages`, built, and installed in roots with nothing but a base system."""
