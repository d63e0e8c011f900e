"""Names of openvino_genai for what pagewheel does not do yet.

Values can be made, are checked, and are kept in configs. To use one raises NotImplementedError that
says what is missing. Whoever builds a feature takes its rows out of the tables here.
"""

from __future__ import annotations

import copy
import enum
import functools
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Union, get_args, get_origin, get_type_hints

from pagewheel.errors import InvalidArgumentError

TREES = "trees of drafts"
LORA = "LoRA"
SPARSITY = "sparse attention"
LINEAR = "linear attention"


def refuse(what: str, feature: str) -> NoReturn:
    raise NotImplementedError(f"{what}: pagewheel has no {feature} yet")


class Missing:
    """A class that cannot be made yet."""

    feature: ClassVar[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse(type(self).__qualname__, self.feature)


# By their names in openvino_genai.
CLASSES: Mapping[str, type[Missing]] = {
    name: type(name, (Missing,), {"feature": LORA}) for name in ("Adapter", "AdapterConfig")
}


# ---- Values: plain data, checked when it is set.


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) in (Union, types.UnionType):
        return any(_fits(value, each) for each in get_args(kind))
    if kind is int:  # all of them count something
        return isinstance(value, int) and value >= 0
    return isinstance(value, (float, int) if kind is float else kind)


def _check(name: str, value: Any, kind: Any) -> None:
    if not _fits(value, kind):
        words = str(kind) if get_origin(kind) else kind.__name__
        words = words.replace("int", "an integer, 0 or more").replace(f"{__name__}.", "")
        raise InvalidArgumentError(f"{name} is {value!r}; allowed: {words}", parameter=name)


class Value:
    """Its fields hold what their annotations say."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        own: Any = type(self)
        kind = _kinds(own).get(name)
        if kind is not None:
            _check(f"{type(self).__name__}.{name}", value, kind)
        super().__setattr__(name, value)


@functools.cache
def _kinds(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


class SparseAttentionMode(enum.IntEnum):
    """Which part of a prompt's attention is computed."""

    TRISHAPE = 0
    XATTENTION = 1


@dataclass(slots=True)
class SparseAttentionConfig(Value):
    """How SchedulerConfig.use_sparse_attention would leave out parts of a prompt's attention."""

    mode: SparseAttentionMode = SparseAttentionMode.TRISHAPE
    num_last_dense_tokens_in_prefill: int = 100
    num_retained_start_tokens_in_cache: int = 128
    num_retained_recent_tokens_in_cache: int = 1920
    xattention_threshold: float = 0.8
    xattention_block_size: int = 64
    xattention_stride: int = 8

    def to_string(self) -> str:
        return repr(self)


# ---- Parameters of configs and pipelines.


@dataclass(frozen=True)
class Parameter:
    """One that pagewheel does nothing with; without a feature, one that asks for nothing alone."""

    feature: str | None
    kind: Any
    initial: Any = None

    def check(self, name: str, value: Any) -> None:
        _check(name, value, self.kind)

    def check_unused(self, name: str, value: Any) -> None:
        """Raises NotImplementedError where the value asks for the feature."""
        self.check(name, value)
        if self.feature and value and value != self.initial:
            refuse(f"{name} is {value!r}", self.feature)


OF_GENERATION: Mapping[str, Parameter] = {
    "adapters": Parameter(LORA, CLASSES["AdapterConfig"] | None),
    "branching_factor": Parameter(TREES, int, 1),
    "tree_depth": Parameter(TREES, int, 0),
}
OF_SCHEDULER: Mapping[str, Parameter] = {
    "use_sparse_attention": Parameter(SPARSITY, bool, False),
    "sparse_attention_config": Parameter(None, SparseAttentionConfig, SparseAttentionConfig()),
    "num_linear_attention_blocks": Parameter(LINEAR, int, 0),
    "cache_interval_multiplier": Parameter(LINEAR, int | None),
}


def known(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Without those that stand here and ask for nothing; NotImplementedError for those that do.

    The bindings pass keyword arguments and dicts of configs and properties through it.
    """
    for name in OF_GENERATION.keys() & parameters.keys():
        OF_GENERATION[name].check_unused(name, parameters[name])
    return {name: value for name, value in parameters.items() if name not in OF_GENERATION}


def kept(name: str, parameter: Parameter, *, unused: bool = False) -> property:
    """A property that is kept in the dict `_kept`; `unused`: refused at once if it is asked for."""

    def get(config: Any) -> Any:
        return config._kept.setdefault(name, copy.copy(parameter.initial))

    def put(config: Any, value: Any) -> None:
        (parameter.check_unused if unused else parameter.check)(name, value)
        config._kept[name] = value

    return property(get, put, doc=f"Of {parameter.feature or SPARSITY}, which is not there yet.")


class Speculation:
    """What openvino_genai's GenerationConfig says of speculative decoding, and pagewheel's not."""

    __slots__ = ()
    num_assistant_tokens: int | None
    branching_factor: int
    tree_depth: int
    do_sample: bool
    num_return_sequences: int
    is_assisting_generation: Callable[[], bool]

    def is_tree_search(self) -> bool:
        return self.tree_depth > 0

    def validate_speculation(self) -> None:
        """Raises InvalidArgumentError for parameters that contradict each other."""
        drafts = self.num_assistant_tokens
        wrong = {
            f"tree_depth is {self.tree_depth}, num_assistant_tokens {drafts}; allowed: at least as "
            "many": self.is_tree_search() and (drafts is None or drafts < self.tree_depth),
            f"branching_factor is {self.branching_factor} with tree_depth; allowed: 1 or more": (
                self.is_tree_search() and self.branching_factor == 0
            ),
            "tree_depth is set with do_sample; allowed: one of them": (
                self.is_tree_search() and self.do_sample
            ),
            "num_return_sequences is above 1 with speculative decoding; allowed: 1": (
                self.num_return_sequences > 1 and self.is_assisting_generation()
            ),
        }
        for message, is_wrong in wrong.items():
            if is_wrong:
                raise InvalidArgumentError(message)
