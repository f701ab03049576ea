"""What the jobs run on the nodes: standard library and torch only, nothing of Headway."""
