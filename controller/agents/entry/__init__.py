"""Which calls may become an agent's stream: limits before anything is known, credentials, addresses. Imports `base` only."""
