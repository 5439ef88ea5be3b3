"""The path of pages to a browser: files with hashed names, sessions, the checks of every request, live updates."""
