"""The contract about runs that come after others."""
