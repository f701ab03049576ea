"""The event loop: applies decisions, moves jobs along, fails nodes, and shows policies the state.
Imports `cluster`, `errors`, `kernel`, `slowdown` and `traces`; of other packages `policies`.
"""
