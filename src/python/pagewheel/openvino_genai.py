"""`import pagewheel.openvino_genai as openvino_genai`: its names for text, with its defaults.

The package pagewheel has the same names with defaults of its own, where docs/differences.md says
why. Both may be used in one program: nothing here changes the other.
"""

from __future__ import annotations

from typing import Any

import pagewheel
from pagewheel import *  # noqa: F403
from pagewheel import get_version as get_version, not_yet
from pagewheel._pagewheel import generation_parameters as _generation_parameters
from pagewheel.not_yet import (
    SparseAttentionConfig as SparseAttentionConfig,
    SparseAttentionMode as SparseAttentionMode,
)

# openvino_genai has none of these.
_OURS = """
    BlockState CacheView cmake_dir detect_parser DraftModel EvictionGranularity EvictionPolicy
    EvictionView generate_json Grammar GrammarMatcher InvalidArgumentError KeptTokens LogLevel
    make_policy ModelNotFoundError ObservedQueries OutOfRangeError OutputStreamer PagewheelError
    parser_families ParserFamily PipelineFailedError PipelineStatistics PrefixCache
    QueueFullError ScorePooling SequenceStatus SequenceView set_log_callback StepStatistics
    StreamedOutput TokenLogProb tool_call_grammar ToolCallIncrementalParser ToolCallParser
    UnfinishedOutputError
"""
for _name in _OURS.split():
    del globals()[_name]

__version__ = get_version()
# What pipelines with two models have besides.
ExtendedPerfMetrics = pagewheel.PerfMetrics


Adapter = not_yet.CLASSES["Adapter"]
AdapterConfig = not_yet.CLASSES["AdapterConfig"]

_NUMBERS = {"int": int, "float": float}
_TYPES = {
    each.name: _NUMBERS[each.type.removesuffix(" | None")]
    for each in _generation_parameters()
    if each.type.removesuffix(" | None") in _NUMBERS
}


_num_assistant_tokens: Any = pagewheel.GenerationConfig.__dict__["num_assistant_tokens"]


class GenerationConfig(not_yet.Speculation, pagewheel.GenerationConfig):
    """pagewheel.GenerationConfig, but rng_seed is 0, and eos_token_id alone is no end.

    GenerationConfig(config) is a copy. Keywords may be numbers in texts. What asks for a feature
    that is not there yet is kept, and refused where it is used.
    """

    __slots__ = ("_kept",)  # a misspelt name is an error

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        copied = args and isinstance(args[0], GenerationConfig)
        self._kept: dict[str, Any] = dict(args[0]._kept) if copied else {}
        super().__init__(*args, **self._own(kwargs))
        if self.rng_seed is None:
            self.rng_seed = 0

    @property  # type: ignore[override]
    def num_assistant_tokens(self) -> int | None:
        """Drafts for each step; None: none are asked for."""
        return _num_assistant_tokens.__get__(self) or None

    @num_assistant_tokens.setter  # type: ignore[override]
    def num_assistant_tokens(self, value: int | None) -> None:
        _num_assistant_tokens.__set__(self, value or 0)

    def update_generation_config(self, **kwargs: Any) -> None:
        """Sets what the keywords name."""
        super().update_generation_config(**self._own(kwargs))

    def validate(self) -> None:
        """Raises InvalidArgumentError also where stop_token_ids does not hold eos_token_id."""
        if self.eos_token_id != -1 and self.eos_token_id not in self.stop_token_ids:
            raise pagewheel.InvalidArgumentError(
                f"stop_token_ids is {self.stop_token_ids} without eos_token_id, "
                f"{self.eos_token_id}: set_eos_token_id() sets both",
                parameter="stop_token_ids",
            )
        super().validate()
        self.validate_speculation()

    def _own(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Keeps those that pagewheel has not, and gives the others."""
        for name in not_yet.OF_GENERATION.keys() & parameters.keys():
            setattr(self, name, parameters.pop(name))
        return {name: _number(name, value) for name, value in parameters.items()}

    def _refuse_missing(self) -> None:
        """For the bindings, before the config is used."""
        not_yet.known(self._kept)


def _number(name: str, value: Any) -> Any:
    """The number in a text, if the parameter is one."""
    if isinstance(value, str) and name in _TYPES:
        try:
            return _TYPES[name](value)
        except ValueError:
            pass  # refused with its name by what takes the value
    return value


class SchedulerConfig(pagewheel.SchedulerConfig):
    """pagewheel.SchedulerConfig, but a step has at most 256 tokens, and eviction takes blocks."""

    __slots__ = ("_kept",)  # a misspelt name is an error

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, Any] = {}
        self.max_num_batched_tokens = 256
        eviction = self.cache_eviction_config
        eviction.granularity = "block"
        self.cache_eviction_config = eviction


class CacheEvictionConfig(pagewheel.CacheEvictionConfig):
    """pagewheel.CacheEvictionConfig, but whole blocks go."""

    __slots__ = ()  # a misspelt name is an error

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"granularity": "block", **kwargs})


for _name, _parameter in not_yet.OF_GENERATION.items():
    setattr(GenerationConfig, _name, not_yet.kept(_name, _parameter))
for _name, _parameter in not_yet.OF_SCHEDULER.items():
    setattr(SchedulerConfig, _name, not_yet.kept(_name, _parameter, unused=True))


class LLMPipeline(pagewheel.LLMPipeline):
    """pagewheel.LLMPipeline, but what is drawn at random is the same at each call."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_generation_config(self.get_generation_config())

    def get_generation_config(self) -> GenerationConfig:
        """A copy of the defaults of generate()."""
        return GenerationConfig(super().get_generation_config())


class ContinuousBatchingPipeline(pagewheel.ContinuousBatchingPipeline):
    """pagewheel.ContinuousBatchingPipeline, with get_config() as LLMPipeline has it."""

    def get_config(self) -> GenerationConfig:
        """The model's defaults."""
        return GenerationConfig(super().get_config())


# The package's names that this module imports or defines.
__all__ = sorted(
    name
    for name, value in globals().items()
    if not name.startswith("_") and getattr(value, "__module__", "").startswith("pagewheel")
)
