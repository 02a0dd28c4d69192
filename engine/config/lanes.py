"""The section `lanes` of a configuration: how an asynchronous run is laid out."""

from __future__ import annotations

from minding.engine.config.options import opt

TRANSPORTS = ("processes", "threads", "ray")
LANES = {
    "collectors": opt(None, "[1, inf)", "collector processes; None: chosen by the number of cores", type=int),
    "shards": opt(1, "[1, inf)", "collectors that share each iteration and divide its environments; 1: none"),
    "max_staleness": opt(
        None,
        "[0, inf)",
        "maximum age of a rollout's weights, in learner iterations; None: chosen by the algorithm",
        type=int,
    ),
    "timeout": opt(300.0, "(0, inf)", "seconds without a heartbeat after which a worker process is replaced"),
    "pin": opt("auto", ("auto", "on", "off"), "pin each lane to cores of its own; auto: if there are at least three"),
    "transport": opt(
        "processes",
        TRANSPORTS,
        "how workers run: as processes, as threads of this process, for debugging, or as actors of a Ray cluster",
    ),
    "address": opt("local", None, "Ray cluster: local starts one on this machine for the run, or HOST:PORT", type=str),
}
"""Its options, but for `async_mode`."""
