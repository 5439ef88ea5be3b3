"""Small bridges to other software; each needs the extra of its name."""
