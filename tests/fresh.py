"""Scripts in processes of their own."""

import os
import subprocess
import sys


def run_fresh(script, *arguments, quiet=True, without=(), limit=120, **environment):
    """Runs a script in a new process, which finds the same modules and must succeed; returns its lines of output.

    Args:
      quiet: whether nothing may be on standard error.
      limit: seconds after which it has failed.
      without: names of environment variables that it does not inherit.
      environment: what it has besides.
    """
    path = os.pathsep.join(entry for entry in sys.path if entry)
    kept = {name: value for name, value in os.environ.items() if name not in without}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    env = {**kept, "PYTHONPATH": path, **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert not quiet or done.stderr == "", done.stderr
    return done.stdout.splitlines()
