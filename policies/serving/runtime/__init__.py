"""What every service of Headway uses at run time: addresses, logs, settings files, systemd, pauses of the garbage collector."""
