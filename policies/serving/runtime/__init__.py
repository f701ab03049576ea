"""Modules that all services use at run time: addresses, host lists, logs, settings files, results of checks, systemd.
Imports `documents` and `errors`.
"""
