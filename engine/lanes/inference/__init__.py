"""Acting through an inference server: collectors send observations, and one worker computes for all of them.

A collector keeps its environments, its random stream and what its policy remembers of them; only the network is
elsewhere (`remote`). So the server has no state but weights (`server`): batches change no draw, and a server that died
is replaced without a loss. It computes what it is asked in batches (`batching`) with the version of the weights that
the collector's request names, as the collector would do itself.
"""
