"""Settings: schemas of options, the compiler that checks them, what identifies a run, code that a file names."""
