"""What every store of bytes shares: jobs and runs <-> rows."""
