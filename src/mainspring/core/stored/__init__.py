"""What stores decide alike about the runs that they hold. Pure."""
