"""`pagewheel serve --replicas`: its options."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pagewheel.ray_serve.settings import ReplicaSettings


@dataclass(frozen=True)
class ReplicaOptions:
    """How many processes share the work."""

    replicas: Annotated[
        str | None,
        typer.Option(
            metavar="N or MIN-MAX",
            help="Processes behind one endpoint, on Ray Serve; of MIN-MAX as many as are busy.",
        ),
    ] = None
    ray_address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Of a Ray cluster for the replicas, or auto."),
    ] = None
    replica_cpus: Annotated[
        int, typer.Option(min=0, help="Of each replica; 0: an equal share of the processors.")
    ] = 0
    requests_per_replica: Annotated[
        int, typer.Option(min=1, help="At once, above which MIN-MAX starts another replica.")
    ] = 16

    def settings(self, log_level: str) -> ReplicaSettings | None:
        """None where there is one process, without Ray. Raises typer.BadParameter."""
        if self.replicas is None:
            for option, given in (
                ("--ray-address", self.ray_address),
                ("--replica-cpus", self.replica_cpus),
            ):
                if given:
                    raise typer.BadParameter("needs --replicas", param_hint=option)
            return None
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", self.replicas)
        fewest, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= fewest <= most:
            raise typer.BadParameter(
                f"expected e.g. 4, or 1-8 for as many as are busy, got {self.replicas!r}",
                param_hint="--replicas",
            )
        from pagewheel.ray_serve.settings import ReplicaSettings

        return ReplicaSettings(
            fewest=fewest,
            most=most,
            address=self.ray_address,
            cpus=self.replica_cpus,
            target_requests=self.requests_per_replica,
            log_level=log_level,
        )
