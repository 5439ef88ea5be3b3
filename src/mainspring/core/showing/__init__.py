"""Show and find runs: views, filters and tracebacks, with secrets masked."""
