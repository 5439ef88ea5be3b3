"""The decisions about stored runs that all stores share. Pure."""
