"""The verbs that explain and foretell."""
