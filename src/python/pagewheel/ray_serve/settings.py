"""What an operator decides about replicas."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReplicaSettings:
    """How many replicas run, with what, and how requests are spread over them."""

    fewest: int = 1
    most: int = 1  # more than `fewest`: as many as running and waiting requests ask for
    address: str | None = None  # of a Ray cluster; None: Ray is started on this machine
    cpus: int = 0  # per replica; 0: its share of the cluster's
    target_requests: int = 16  # per replica, above which another one is started
    up_seconds: float = 10.0  # for which more must have been asked for
    down_seconds: float = 300.0  # for which less must have been
    imbalance: int = 8  # requests that a replica may have more than another
    prefix_blocks: int = 32768  # of prompts, remembered per replica
    log_level: str = "info"
    name: str = "pagewheel"  # of the application in Ray Serve
