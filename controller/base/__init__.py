"""Modules that every part of the controller uses: clock, settings, errors, events, the lease, text helpers.
Imports `policies`.
"""
