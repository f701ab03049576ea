"""Small things to learn for tests of training: environments, systems, cards, rows of replay memories."""
