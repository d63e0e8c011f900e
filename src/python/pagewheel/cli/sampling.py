"""How a command was told to choose tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pagewheel._pagewheel import (
    GenerationConfig,
    Grammar,
    LLMPipeline,
    StructuredOutputConfig,
    generation_parameters,
)
from pagewheel.cli.failures import wrong_usage


@dataclass(frozen=True)
class Sampling:
    """Generation parameters that were given; the others stay as the model's config has them."""

    given: dict[str, Any]

    def apply(self, config: GenerationConfig) -> None:
        """Write into a config. A parameter of sampling turns sampling on."""
        config.update_generation_config(**self.given)
        if "do_sample" in self.given:
            return
        section = {each.name: each.section for each in generation_parameters()}
        if any(section[name] == section["do_sample"] for name in self.given):
            config.do_sample = True
        elif config.num_beams > 1:
            config.do_sample = False

    def check(
        self,
        config: GenerationConfig,
        shape: StructuredOutputConfig | None,
        pipeline: LLMPipeline,
    ) -> None:
        """apply(), with the answer's shape. Raises typer.BadParameter for what does not fit."""
        with wrong_usage():
            self.apply(config)
            config.structured_output_config = shape
            config.validate()
            if shape is not None:
                Grammar(shape, pipeline.get_tokenizer())
