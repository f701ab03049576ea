"""The ground that learned policies are trained on, and its data sets. Imports `envs`, `papers` and everything below."""
