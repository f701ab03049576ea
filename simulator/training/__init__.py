"""The simulator as a training ground for learned policies, and its data sets. Imports `envs`, `runs` and everything below."""
