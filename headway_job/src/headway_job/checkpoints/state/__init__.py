"""The content of a checkpoint: the state of models and optimizers, whole or in shards. Imports `checkpoints/errors`."""
