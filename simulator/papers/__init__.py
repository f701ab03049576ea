"""One folder for each published system: its environment, baselines and experiment. Imports `envs` and everything below it."""
