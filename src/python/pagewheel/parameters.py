"""Writes generation parameters that somebody gave into a config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagewheel._pagewheel import GenerationConfig, generation_parameters


def apply_parameters(config: GenerationConfig, given: Mapping[str, Any]) -> None:
    """The others stay as they are. A parameter of sampling turns sampling on."""
    config.update_generation_config(**given)
    if "do_sample" in given:
        return
    section = {each.name: each.section for each in generation_parameters()}
    if any(section[name] == section["do_sample"] for name in given):
        config.do_sample = True
    elif config.num_beams > 1:
        config.do_sample = False
