"""How runs are executed inside a process: threads, child processes, event loops, greenlets, inline."""
