"""The section `lanes` of a configuration: the layout of an asynchronous run."""

from __future__ import annotations

from minding.engine.config.options import opt

TRANSPORTS = ("processes", "threads", "ray")
LANES = {
    "collectors": opt(
        None, "[1, 4096]", "number of collector processes; None: chosen by the number of cores", type=int
    ),
    "shards": opt(
        1, "[1, 4096]", "number of collectors that share one iteration and divide its environments; 1: not shared"
    ),
    "max_staleness": opt(
        None,
        "[0, 1000]",
        "maximum age of a rollout's weights, in learner iterations; None: chosen by the algorithm",
        type=int,
    ),
    "order": opt(
        "exact",
        ("exact", "arrival"),
        "which rollout an iteration uses; exact: its own, so that runs are repeatable; arrival: the next one to arrive",
    ),
    "inference": opt(
        "local",
        ("local", "server", "auto"),
        "where collectors' networks are computed: local: in each collector; server: in one worker, in batches; auto: "
        "where a trial before the run is faster",
    ),
    "max_batch": opt(256, "[1, inf)", "observations of collectors that an inference server computes together"),
    "max_wait_ms": opt(
        2.0, "[0, inf)", "milliseconds that an inference server waits for more observations before it computes"
    ),
    "timeout": opt(
        None,
        "(0, inf)",
        "seconds without a heartbeat after which a worker is replaced; None: 300, on Ray 30",
        type=float,
    ),
    "start_timeout": opt(
        60.0, "(0, inf)", "seconds to wait for a worker's first heartbeat, or for a free place on the cluster"
    ),
    "limiter_timeout": opt(
        600.0,
        "(0, inf)",
        "order=arrival: seconds to wait for a rollout while the limiter of a replay table forbids sampling",
    ),
    "pin": opt(
        "auto", ("auto", "on", "off"), "pin each lane to its own cores; auto: if there are at least three cores"
    ),
    "transport": opt(
        "processes",
        TRANSPORTS,
        "how workers run: as processes, as threads of this process (for debugging), or as actors on a Ray cluster",
    ),
    "address": opt(
        "local",
        None,
        "Ray cluster: local starts one on this machine for the run; HOST:PORT connects to a running one",
        type=str,
    ),
    "insecure": opt(
        False, None, "use a Ray cluster without a token; anyone who can reach the cluster can run code on it"
    ),
}
"""Its options, but for `async_mode`."""
