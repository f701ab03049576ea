"""How fast jobs run, alone and beside others, predicted from a cluster state. Imports `placement` and `state`."""
