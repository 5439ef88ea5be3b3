"""How runs are shown and found: views, filters, tracebacks, and what must not be shown."""
