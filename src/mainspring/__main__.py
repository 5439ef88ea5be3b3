"""`python -m mainspring` is the command line."""

from mainspring.cli import main

if __name__ == "__main__":
    main(prog_name="mainspring")
