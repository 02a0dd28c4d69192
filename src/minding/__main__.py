"""`python -m minding` is the `minding` command."""

import os
import sys

import minding

if __name__ == "__main__":
    here = os.path.realpath(os.curdir)
    # Python has put the current folder first: nothing there shall stand in for an installed package.
    if os.path.realpath(sys.path[0]) == here != os.path.dirname(os.path.realpath(minding.__path__[0])):
        del sys.path[0]
    from minding.cli import main

    main()
