"""The tables and pictures that the demonstration shows. Imports nothing that runs jobs."""
