"""Run-time parts of all services of Headway: addresses, logs, settings files, systemd, garbage collection. Imports `errors`."""
