"""History, which is optional for a store: people's acts, and counters."""
