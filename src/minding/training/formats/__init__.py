"""Readers and writers for formats of recorded data. Reading runs no code and downloads nothing."""
