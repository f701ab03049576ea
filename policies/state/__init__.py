"""Tables that policies keep of job pairs, of ring reductions, and of the GPUs inside a node. Imports nothing of Headway."""
