"""Policies as files: written as one graph in MindIR or ONNX, and checked before they run."""
