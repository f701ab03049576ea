"""The client for programs with asyncio. May import everything but `sync`."""
