"""The places where checkpoints are kept: a folder of a file system, or an fsspec URL. Imports `checkpoints/errors`, `started`."""
