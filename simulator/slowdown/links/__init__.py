"""Models of links that several jobs share, and the ring reduction over them.
Imports `cluster`, `policies`, `slowdown/api`, `slowdown/base`, `slowdown/fitting`, `slowdown/gpu_groups` and
`slowdown/profiles`.
"""
