"""Settings of the algorithms, one file each, importable without MindSpore: a module that holds an `algorithm`."""
