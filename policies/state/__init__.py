"""Tables that policies keep of job pairs and of ring reductions. Imports nothing of Headway."""
