"""What a checkpoint consists of: the state of models and optimizers, whole or in shards. Imports only checkpoints.errors."""
