from minding.engine.process import runtime

# Loading changes the recursion limit, which hypothesis takes amiss within a test.
runtime.load()
