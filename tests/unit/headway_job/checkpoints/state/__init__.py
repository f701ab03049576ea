"""Tests of what a checkpoint consists of: copies, shards, and loading them again."""
