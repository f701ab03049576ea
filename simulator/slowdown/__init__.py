"""Slowdown models: small models whose factors are multiplied. Imports `cluster` and `policies.state`.

`registry` builds the models by name; `placement`, `neighbours` and `links` hold one model a file, each with its equation,
its source and its fit.
"""
