"""Models that look at one job alone: how spread it is, at what size, on which kind of node. Imports `base` and `links.ring`."""
