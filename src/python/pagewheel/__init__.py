"""pagewheel: language models on the OpenVINO runtime.

The names are those of openvino_genai's text API, so a program written for it runs with the import
changed. `LLMPipeline` is where to start.
"""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pagewheel._pagewheel import (
    AdaptiveRKVConfig,
    AggregationMode,
    CacheEvictionConfig,
    ChatHistory,
    ContinuousBatchingPipeline,
    DecodedResults,
    EncodedGenerationResult,
    EncodedResults,
    EvictionGranularity,
    EvictionPolicy,
    EvictionView,
    GenerationConfig,
    GenerationFinishReason,
    GenerationHandle,
    GenerationOutput,
    GenerationResult,
    GenerationStatus,
    KVCrushAnchorPointMode,
    KVCrushConfig,
    LLMPipeline,
    LogLevel,
    MeanStdPair,
    ObservedQueries,
    PerfMetrics,
    PipelineMetrics,
    PipelineStatistics,
    PrefixCache,
    QueueFullError,
    RawPerfMetrics,
    SchedulerConfig,
    ScorePooling,
    StepStatistics,
    StopCriteria,
    StreamerBase,
    StreamingStatus,
    SummaryStats,
    TextStreamer,
    TokenizedInputs,
    Tokenizer,
    make_policy,
    set_log_callback,
)
from pagewheel.errors import InvalidArgumentError, ModelNotFoundError, OutOfRangeError

try:
    __version__ = version("pagewheel")
except PackageNotFoundError:  # used from a source tree
    __version__ = "0+unknown"

__all__ = [
    "AdaptiveRKVConfig",
    "AggregationMode",
    "CacheEvictionConfig",
    "ChatHistory",
    "ContinuousBatchingPipeline",
    "DecodedResults",
    "EncodedGenerationResult",
    "EncodedResults",
    "EvictionGranularity",
    "EvictionPolicy",
    "EvictionView",
    "GenerationConfig",
    "GenerationFinishReason",
    "GenerationHandle",
    "GenerationOutput",
    "GenerationResult",
    "GenerationStatus",
    "InvalidArgumentError",
    "KVCrushAnchorPointMode",
    "KVCrushConfig",
    "LLMPipeline",
    "LogLevel",
    "MeanStdPair",
    "ModelNotFoundError",
    "ObservedQueries",
    "OutOfRangeError",
    "PerfMetrics",
    "PipelineMetrics",
    "PipelineStatistics",
    "PrefixCache",
    "QueueFullError",
    "RawPerfMetrics",
    "SchedulerConfig",
    "ScorePooling",
    "StepStatistics",
    "StopCriteria",
    "StreamerBase",
    "StreamingStatus",
    "SummaryStats",
    "TextStreamer",
    "TokenizedInputs",
    "Tokenizer",
    "__version__",
    "cmake_dir",
    "get_version",
    "make_policy",
    "set_log_callback",
]


def get_version() -> str:
    """The version of pagewheel, as openvino_genai.get_version() is asked."""
    return __version__


def cmake_dir() -> Path:
    """The folder of pagewheelConfig.cmake, for `cmake -Dpagewheel_DIR=...`."""
    return Path(__file__).parent / "cmake"
