"""pagewheel, as it comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers.genai_api import GenaiApiEngine


class PagewheelEngine(GenaiApiEngine):
    """pagewheel's ContinuousBatchingPipeline with its default settings.

    Prefix caching and drafts are off, because rounds repeat the same prompts and answers. The first
    load of a model converts it into the user's cache, later ones find it there.
    """

    module_name = "pagewheel"

    def scheduler_config(self) -> Any:
        config = self._api.SchedulerConfig()
        config.enable_prefix_caching = False
        config.speculation = "off"
        return config

    def open_pipeline(self, model: Path, config: Any, device: str, properties: Any) -> Any:
        return self._api.ContinuousBatchingPipeline(str(model), config, device, **properties)
