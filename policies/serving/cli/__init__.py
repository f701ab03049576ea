"""The `headway-policy` command. Imports `api`, `errors`, `learned`, `serving/client`, `serving/runtime` and `serving/server`."""
