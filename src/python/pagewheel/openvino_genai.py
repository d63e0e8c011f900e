"""`import pagewheel.openvino_genai as openvino_genai`: its names for text, with its defaults.

The package pagewheel has the same names with defaults of its own, where docs/differences.md says
why. Both may be used in one program: nothing here changes the other.
"""

from __future__ import annotations

from typing import Any

import pagewheel
from pagewheel import (
    AdaptiveRKVConfig,
    AggregationMode,
    ChatHistory,
    DecodedResults,
    EncodedGenerationResult,
    EncodedResults,
    GenerationFinishReason,
    GenerationHandle,
    GenerationOutput,
    GenerationResult,
    GenerationStatus,
    KVCrushAnchorPointMode,
    KVCrushConfig,
    MeanStdPair,
    PerfMetrics,
    PipelineMetrics,
    RawPerfMetrics,
    StopCriteria,
    StreamerBase,
    StreamingStatus,
    SummaryStats,
    TextStreamer,
    TokenizedInputs,
    Tokenizer,
    get_version,
)

__all__ = [
    "AdaptiveRKVConfig",
    "AggregationMode",
    "CacheEvictionConfig",
    "ChatHistory",
    "ContinuousBatchingPipeline",
    "DecodedResults",
    "EncodedGenerationResult",
    "EncodedResults",
    "ExtendedPerfMetrics",
    "GenerationConfig",
    "GenerationFinishReason",
    "GenerationHandle",
    "GenerationOutput",
    "GenerationResult",
    "GenerationStatus",
    "KVCrushAnchorPointMode",
    "KVCrushConfig",
    "LLMPipeline",
    "MeanStdPair",
    "PerfMetrics",
    "PipelineMetrics",
    "RawPerfMetrics",
    "SchedulerConfig",
    "StopCriteria",
    "StreamerBase",
    "StreamingStatus",
    "SummaryStats",
    "TextStreamer",
    "TokenizedInputs",
    "Tokenizer",
    "get_version",
]

__version__ = get_version()
# What pipelines with two models would have besides.
ExtendedPerfMetrics = PerfMetrics


class GenerationConfig(pagewheel.GenerationConfig):
    """pagewheel.GenerationConfig, but rng_seed is 0, and eos_token_id alone is no end."""

    __slots__ = ()  # a misspelt name is an error

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.rng_seed is None:
            self.rng_seed = 0

    def validate(self) -> None:
        """Raises InvalidArgumentError also where stop_token_ids does not hold eos_token_id."""
        if self.eos_token_id != -1 and self.eos_token_id not in self.stop_token_ids:
            raise pagewheel.InvalidArgumentError(
                f"stop_token_ids is {self.stop_token_ids} without eos_token_id, "
                f"{self.eos_token_id}: set_eos_token_id() sets both"
            )
        super().validate()


class SchedulerConfig(pagewheel.SchedulerConfig):
    """pagewheel.SchedulerConfig, but a step has at most 256 tokens."""

    __slots__ = ()  # a misspelt name is an error

    def __init__(self) -> None:
        super().__init__()
        self.max_num_batched_tokens = 256


class CacheEvictionConfig(pagewheel.CacheEvictionConfig):
    """pagewheel.CacheEvictionConfig, but whole blocks go."""

    __slots__ = ()  # a misspelt name is an error

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"granularity": "block", **kwargs})


class LLMPipeline(pagewheel.LLMPipeline):
    """pagewheel.LLMPipeline, but what is drawn at random is the same at each call."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_generation_config(_seeded(self.get_generation_config()))


class ContinuousBatchingPipeline(pagewheel.ContinuousBatchingPipeline):
    """pagewheel.ContinuousBatchingPipeline, with get_config() as LLMPipeline has it."""

    def get_config(self) -> pagewheel.GenerationConfig:
        """The model's defaults."""
        return _seeded(super().get_config())


def _seeded(config: pagewheel.GenerationConfig) -> pagewheel.GenerationConfig:
    if config.rng_seed is None:
        config.rng_seed = 0
    return config
