"""Policies that share out several resources, or resize jobs: DRF, Tetris, Optimus. Imports `ordering`, `placement` and `speeds`."""
