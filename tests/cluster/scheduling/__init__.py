"""Where and when jobs start, what Headway leaves alone, and what the watchdog does."""
