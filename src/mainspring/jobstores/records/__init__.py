"""The common part of all stores of bytes: it turns jobs and runs into rows and back."""
