"""The programs of the jobs on the nodes: they use the standard library and torch only, nothing of Headway."""
