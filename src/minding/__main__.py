"""`python -m minding` is the `minding` command."""

from minding.cli import main

if __name__ == "__main__":
    main()
