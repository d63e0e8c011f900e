"""pagewheel: language models on the OpenVINO runtime.

The names are those of openvino_genai's text API, so a program written for it runs with the import
changed. `LLMPipeline` is where to start.
"""

from importlib import metadata
from pathlib import Path as _Path
from types import ModuleType as _ModuleType

from pagewheel._pagewheel import (
    AdaptiveRKVConfig as AdaptiveRKVConfig,
    AggregationMode as AggregationMode,
    BlockState as BlockState,
    CacheEvictionConfig as CacheEvictionConfig,
    CacheView as CacheView,
    ChatHistory as ChatHistory,
    ContinuousBatchingPipeline as ContinuousBatchingPipeline,
    DecodedResults as DecodedResults,
    DeepSeekR1ReasoningIncrementalParser as DeepSeekR1ReasoningIncrementalParser,
    DeepSeekR1ReasoningParser as DeepSeekR1ReasoningParser,
    DraftModel as DraftModel,
    EncodedGenerationResult as EncodedGenerationResult,
    EncodedResults as EncodedResults,
    EvictionGranularity as EvictionGranularity,
    EvictionPolicy as EvictionPolicy,
    EvictionView as EvictionView,
    GenerationConfig as GenerationConfig,
    GenerationFinishReason as GenerationFinishReason,
    GenerationHandle as GenerationHandle,
    GenerationOutput as GenerationOutput,
    GenerationResult as GenerationResult,
    GenerationStatus as GenerationStatus,
    Grammar as Grammar,
    GrammarMatcher as GrammarMatcher,
    IncrementalParser as IncrementalParser,
    KeptTokens as KeptTokens,
    KVCrushAnchorPointMode as KVCrushAnchorPointMode,
    KVCrushConfig as KVCrushConfig,
    Llama3JsonToolParser as Llama3JsonToolParser,
    Llama3PythonicToolParser as Llama3PythonicToolParser,
    LLMPipeline as LLMPipeline,
    LogLevel as LogLevel,
    MeanStdPair as MeanStdPair,
    ObservedQueries as ObservedQueries,
    OutputStreamer as OutputStreamer,
    Parser as Parser,
    ParserFamily as ParserFamily,
    PerfMetrics as PerfMetrics,
    Phi4ReasoningIncrementalParser as Phi4ReasoningIncrementalParser,
    Phi4ReasoningParser as Phi4ReasoningParser,
    PipelineMetrics as PipelineMetrics,
    PipelineStatistics as PipelineStatistics,
    PrefixCache as PrefixCache,
    RawPerfMetrics as RawPerfMetrics,
    ReasoningIncrementalParser as ReasoningIncrementalParser,
    ReasoningParser as ReasoningParser,
    SchedulerConfig as SchedulerConfig,
    ScorePooling as ScorePooling,
    SDPerfMetrics as SDPerfMetrics,
    SDPerModelsPerfMetrics as SDPerModelsPerfMetrics,
    SequenceStatus as SequenceStatus,
    SequenceView as SequenceView,
    StepStatistics as StepStatistics,
    StopCriteria as StopCriteria,
    StreamedOutput as StreamedOutput,
    StreamerBase as StreamerBase,
    StreamingStatus as StreamingStatus,
    StructuralTagItem as StructuralTagItem,
    StructuralTagsConfig as StructuralTagsConfig,
    StructuredOutputConfig as StructuredOutputConfig,
    SummaryStats as SummaryStats,
    TextParserStreamer as TextParserStreamer,
    TextStreamer as TextStreamer,
    TokenizedInputs as TokenizedInputs,
    Tokenizer as Tokenizer,
    TokenLogProb as TokenLogProb,
    ToolCallIncrementalParser as ToolCallIncrementalParser,
    ToolCallParser as ToolCallParser,
    detect_parser as detect_parser,
    draft_model as draft_model,
    make_policy as make_policy,
    parser_families as parser_families,
    set_log_callback as set_log_callback,
    tool_call_grammar as tool_call_grammar,
)
from pagewheel.errors import (
    InvalidArgumentError as InvalidArgumentError,
    ModelNotFoundError as ModelNotFoundError,
    OutOfRangeError as OutOfRangeError,
    PagewheelError as PagewheelError,
    PipelineFailedError as PipelineFailedError,
    QueueFullError as QueueFullError,
)
from pagewheel.json_output import (
    UnfinishedOutputError as UnfinishedOutputError,
    generate_json as generate_json,
)
from pagewheel.vllm_parsers import VLLMParserWrapper as VLLMParserWrapper

try:
    __version__ = metadata.version("pagewheel")
except metadata.PackageNotFoundError:  # used from a source tree
    __version__ = "0+unknown"


def get_version() -> str:
    """The version of pagewheel, as openvino_genai.get_version() is asked."""
    return __version__


def cmake_dir() -> _Path:
    """The folder of pagewheelConfig.cmake, for `cmake -Dpagewheel_DIR=...`."""
    return _Path(__file__).parent / "cmake"


# All that this module imports or defines.
__all__ = sorted(
    name
    for name, value in globals().items()
    if (not name.startswith("_") and not isinstance(value, _ModuleType)) or name == "__version__"
)
