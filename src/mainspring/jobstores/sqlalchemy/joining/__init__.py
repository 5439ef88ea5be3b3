"""Runs written inside a transaction of the user's, here or for a store that is elsewhere."""
