"""Output of the commands: tables for terminals, one JSON object for programs. Imports `base`; of other packages `protos`."""
