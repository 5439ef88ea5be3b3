"""How things stand, in words: why something has or has not run, how a schedule fares, what it will do. Pure."""
