"""What every service of Headway uses at run time: addresses, host lists, logs, settings files, systemd, garbage collection."""
