"""Random stories that `make test` plays: forty in each file, because pytest-xdist gives each file to one process."""
