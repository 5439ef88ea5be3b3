"""Tools for tests of programs that use mainspring, and of stores for it."""
