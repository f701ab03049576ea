"""Tests of the hook: what it sends of a program that trains, and that the program does not notice it."""
