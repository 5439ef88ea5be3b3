"""Small bridges to other software; each needs the extra with its name."""
