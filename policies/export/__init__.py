"""Policies as files: written as one graph in MindIR or ONNX, read and checked without running what they hold."""
