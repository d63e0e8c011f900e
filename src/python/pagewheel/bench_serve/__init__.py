"""`pagewheel bench-serve`: load on a server of OpenAI's API, and what clients see of it."""
