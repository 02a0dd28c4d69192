"""Acting through an inference server: collectors send observations, and one worker computes for all of them.

A collector keeps its environments, its random stream and the memory of its policy; only the network is elsewhere
(`remote`). The server therefore has no state but weights (`server`): batches change no random draw, and a server that
died is replaced without loss. It computes questions in batches (`batching`) with the version of the weights that the
collector's request names, as the collector itself would.
"""
