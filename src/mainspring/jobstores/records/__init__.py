"""The part that all stores of bytes share: it turns jobs and runs into rows and back."""
