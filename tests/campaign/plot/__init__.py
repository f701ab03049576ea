"""Plot of a story: its steps as data, the operations and faults that they name, and their choice from a seed."""
