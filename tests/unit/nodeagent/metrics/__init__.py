"""Tests of the node's metrics."""
