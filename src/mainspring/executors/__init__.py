"""Executors execute runs inside a process: in threads, child processes, event loops, greenlets, or inline."""
