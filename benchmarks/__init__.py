"""Speed and footprint of minding, measured against peers in one run (`python -m benchmarks.run`)."""
