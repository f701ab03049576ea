"""One cluster on any clock: the simulator, its traces, and its slowdown models. Imports `policies`."""
