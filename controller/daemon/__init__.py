"""The long-running programs: the controller, put together from its parts, and the watchdog. Imports everything but `cli`."""
