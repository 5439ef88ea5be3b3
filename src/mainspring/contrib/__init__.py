"""Small bridges to other people's software; each needs the extra of its name."""
