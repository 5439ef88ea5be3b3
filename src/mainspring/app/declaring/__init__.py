"""Declaring tasks: a task with its options and calls, parameters that workers provide, and types of the others."""
