"""Checkpoints that the controller requests: all ranks of a job save at one step. Imports `jobsocket`, `identity`, `wire`."""
