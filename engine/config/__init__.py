"""Settings: schemas of options, the compiler that checks them, the identity of a run, and code that settings name."""
