"""Turn calls into runs, and store them: at once, behind a limit, or inside a user's transaction."""
