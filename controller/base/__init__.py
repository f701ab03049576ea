"""Modules that every part of the controller uses: clock, settings, errors, events, the lease, text helpers.
Imports no other folder of the controller.
"""
