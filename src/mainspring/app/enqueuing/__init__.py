"""Turn calls into runs, and store them: now, behind a limit, or inside a transaction of the user's."""
