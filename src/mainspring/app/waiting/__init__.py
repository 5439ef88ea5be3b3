"""Wait for runs until they have ended."""
