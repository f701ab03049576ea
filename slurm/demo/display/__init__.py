"""What the demonstration shows while it runs and at its end."""
