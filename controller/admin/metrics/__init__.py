"""Prometheus metrics, and the server that answers scrapes. Imports what `admin` may import; nothing here changes anything."""
