"""Tools for tests: of programs that use mainspring, and of stores that want to be used by it."""
