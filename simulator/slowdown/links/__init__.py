"""Models of links that several jobs share, and the ring reduction over them. Imports `base`, `profiles` and `fitting`."""
