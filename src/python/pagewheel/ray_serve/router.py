"""Ray Serve's request router: asks Routes for the order of replicas, and tells it what happened.

Ray Serve pickles what stands in this file, which must hold nothing else: routes has a lock.
"""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from pagewheel.ray_serve.routes import routes_of


class PrefixRouter(RequestRouter):
    """Routes requests of the handle in a front's process, whose first argument has the id."""

    def initialize_state(self, name: str, imbalance: int, blocks: int) -> None:
        self._routes = routes_of(name, imbalance, blocks)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        super().update_replicas(replicas)
        self._routes.set_replicas([_tag(each.replica_id) for each in replicas])

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        super().on_replica_actor_died(replica_id)
        self._routes.remove(_tag(replica_id))

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Every replica is a rank of its own: the next one is asked where one has no room."""
        if pending_request is None or not pending_request.args:
            return [candidate_replicas]
        # Else Ray Serve asks again at once, without end, while no replica has room.
        pending_request.routing_context.should_backoff = True
        own = self._routes.loads()
        cache = self.replica_queue_len_cache
        reported: dict[str, int] = {}
        for each in candidate_replicas:
            tag, length = _tag(each.replica_id), cache.get(each.replica_id)
            if length is None:
                # Ray Serve would ask the replica first. It says so anyhow when it has no room.
                cache.update(each.replica_id, min(own[tag], each.max_ongoing_requests - 1))
            reported[tag] = length or 0
        by_tag = {_tag(each.replica_id): each for each in candidate_replicas}
        order = self._routes.order(pending_request.args[0].id, list(by_tag), reported)
        return [[by_tag[tag]] for tag in order]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        if pending_request.args:
            self._routes.sent(pending_request.args[0].id, _tag(replica_id))


def _tag(replica_id: ReplicaID) -> str:
    return str(replica_id.unique_id)
