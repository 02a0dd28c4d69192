"""Parts of networks (`nn.Cell`), each with a compiled form and, where it acts, a NumPy form."""
