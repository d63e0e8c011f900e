"""GGUF's quantisation blocks as OpenVINO constants: the same integers, differently packed.

Each decoder takes the bytes of whole rows, u8 [rows, bytes per row], and gives what
`QuantizedWeight` holds: integers, one scale per group and, where the type has minimums, one
zero point per group. docs/gguf.md lists every type's constant, size and error bound. The
block layouts are those of ggml-common.h and are tested against the `gguf` package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import openvino as ov
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import IQ4_NL, MXFP4, dequantize

from ...errors import ConversionError
from ..weights.weight import (
    DenseWeight,
    QuantizedRows,
    QuantizedWeight,
    Weight,
    pack_nibbles,
)

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

# Bytes of rows handled at a time: bounds temporary memory without slowing numpy down.
_CHUNK_BYTES = 1 << 18
# The fields of a block of 256 weights that several types share.
_D = ("d", "<f2")
_DMIN = ("dmin", "<f2")


def _fields(data: Bytes, *names_and_types: tuple[str, str]) -> npt.NDArray[Any]:
    """Views rows of blocks as records. u8 [rows, bytes] -> [rows, blocks]."""
    return np.ascontiguousarray(data).view(np.dtype(list(names_and_types)))


def _split(packed: Bytes, run: int, bits: int) -> Bytes:
    """Unpacks fields of `bits` bits: each run of `run` bytes holds 8 / bits runs of weights,
    the first in its lowest bits. u8 [..., bytes] -> u8 [..., bytes * 8 / bits].
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    runs = packed.reshape(*packed.shape[:-1], -1, 1, run)
    fields = (runs >> shifts) & np.uint8((1 << bits) - 1)
    return fields.reshape(*packed.shape[:-1], -1)


def _rows(quants: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[rows, blocks, weights of a block] -> [rows, weights]."""
    return quants.reshape(len(quants), -1)


def _affine(
    quants: Bytes, scale: npt.NDArray[Any], minimum: npt.NDArray[Any], four_bits: bool
) -> QuantizedWeight:
    """w = quants * scale + minimum becomes (quants - zero_point) * scale, zero_point =
    -minimum / scale in f32, equal to |minimum| / 2**22.

    In f16 the zero point would move a weight by up to |minimum| / 2048, which costs SmolLM2's
    logits 6e-3 at the worst position instead of 7e-6; OpenVINO's CPU plugin holds zero points
    in f32 whatever the file has. A group whose scale is 0 is constant: (0 - -1) * minimum.
    """
    constant = scale == 0
    if constant.any():
        quants, scale = quants.copy(), scale.copy()
        quants.reshape(*scale.shape, 32)[constant] = 0
        scale[constant] = minimum[constant]
    divisor = np.where(constant, np.float32(1), scale.astype(np.float32))
    with np.errstate(invalid="ignore", over="ignore"):  # decode() refuses what is not finite
        zero_point = np.where(constant, np.float32(-1), -minimum.astype(np.float32) / divisor)
    if four_bits:
        return QuantizedWeight(pack_nibbles(quants), ov.Type.u4, scale, zero_point)
    return QuantizedWeight(quants, ov.Type.u8, scale, zero_point)


def _decode_q4_0(data: Bytes) -> QuantizedWeight:
    blocks = _fields(data, _D, ("quants", "16u1"))
    quants = pack_nibbles(_rows(_split(blocks["quants"], 16, 4)))
    return QuantizedWeight(quants, ov.Type.u4, blocks["d"].copy(), 8)


def _decode_q4_1(data: Bytes) -> QuantizedWeight:
    blocks = _fields(data, _D, ("minimum", "<f2"), ("quants", "16u1"))
    quants = _rows(_split(blocks["quants"], 16, 4))
    return _affine(quants, blocks["d"].copy(), blocks["minimum"], True)


def _fifth_bits(packed: Bytes) -> Bytes:
    """u8 [rows, blocks, 4], bit i for weight i -> u8 [rows, blocks, 32] of 0 or 16."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << np.uint8(4)


def _decode_q5_0(data: Bytes) -> QuantizedWeight:
    blocks = _fields(data, _D, ("high", "4u1"), ("quants", "16u1"))
    quants = _split(blocks["quants"], 16, 4) | _fifth_bits(blocks["high"])
    values = (_rows(quants).view(np.int8) - np.int8(16)).view(np.uint8)
    return QuantizedWeight(values, ov.Type.i8, blocks["d"].copy(), None)


def _decode_q5_1(data: Bytes) -> QuantizedWeight:
    blocks = _fields(data, _D, ("minimum", "<f2"), ("high", "4u1"), ("quants", "16u1"))
    quants = _split(blocks["quants"], 16, 4) | _fifth_bits(blocks["high"])
    return _affine(_rows(quants), blocks["d"].copy(), blocks["minimum"], False)


def _decode_q8_0(data: Bytes) -> QuantizedWeight:
    blocks = _fields(data, _D, ("quants", "32u1"))
    return QuantizedWeight(_rows(blocks["quants"]), ov.Type.i8, blocks["d"].copy(), None)


def _products(d: npt.NDArray[Any], factors: npt.NDArray[Any]) -> Floats:
    """Multiplies a block's f16 number with its groups' small integers: exact in f32, not in f16.
    [rows, blocks], [rows, blocks, groups] -> f32 [rows, blocks * groups].
    """
    return _rows(d.astype(np.float32)[..., None] * factors.astype(np.float32)).copy()


def _halves(numbers: Floats) -> npt.NDArray[np.float16]:
    """Rounds to f16, for fewer bytes to read. It moves scales and minimums of K types by 2^-12 of
    themselves, where rounding to six bits has moved them by up to 2^-7 of a block's largest.
    """
    with np.errstate(over="ignore"):  # decode() refuses what is not finite
        return numbers.astype(np.float16)


def _decode_q3_k(data: Bytes) -> QuantizedWeight:
    """Multiplies a block's values -4..3 with the scales -32..31 of its groups of 16: then 256
    weights have one scale, and nothing is rounded. -4 * -32 does not fit i8, so both signs turn.
    """
    blocks = _fields(data, ("high", "32u1"), ("quants", "64u1"), ("scales", "12u1"), _D)
    quants = _split(blocks["quants"], 32, 2) | (_split(blocks["high"], 32, 1) << 2)
    low = _split(blocks["scales"][..., :8], 8, 4)
    high = _split(blocks["scales"][..., 8:], 4, 2)
    factors = np.repeat(32 - (low | (high << 4)).astype(np.int8), 16, axis=-1)
    values = (quants.view(np.int8) - np.int8(4)) * factors
    return QuantizedWeight(_rows(values).view(np.uint8), ov.Type.i8, -blocks["d"], None, 256)


def _scales_and_minimums(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Unpacks 6-bit numbers of Q4_K and Q5_K. u8 [rows, blocks, 12] -> two u8 [rows, blocks, 8].

    Scales 0..3 and minimums 0..3 are the low six bits of bytes 0..3 and 4..7. Bytes 8..11
    hold the low nibbles of scales 4..7 and, above them, of minimums 4..7; their two high bits
    are on top of the bytes 0..7.
    """
    first, second, third = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = [first & 0x3F, (third & 0x0F) | ((first >> 2) & 0x30)]
    minimums = [second & 0x3F, (third >> 4) | ((second >> 2) & 0x30)]
    return np.concatenate(scales, axis=-1), np.concatenate(minimums, axis=-1)


def _decode_q4_or_q5_k(data: Bytes, *high: tuple[str, str]) -> QuantizedWeight:
    """`high` is the field of the fifth bits, if there are any."""
    blocks = _fields(data, _D, _DMIN, ("scales", "12u1"), *high, ("quants", "128u1"))
    scales, minimums = _scales_and_minimums(blocks["scales"])
    scale, minimum = _products(blocks["d"], scales), _products(blocks["dmin"], minimums)
    quants = _split(blocks["quants"], 32, 4)
    if high:
        quants |= _split(blocks["high"], 32, 1) << 4
    return _affine(_rows(quants), _halves(scale), _halves(-minimum), not high)


def _decode_q6_k(data: Bytes) -> QuantizedWeight:
    """Joins pairs of groups of 16 to i8 in groups of 32, which kernels for int8 activations take.

    The scale is a fourth of that of the group with the larger one. So that group's values are
    multiplied by four, and the other's are rounded.
    """
    blocks = _fields(data, ("low", "128u1"), ("high", "64u1"), ("scales", "16i1"), _D)
    quants = _split(blocks["low"], 64, 4) | (_split(blocks["high"], 32, 2) << 4)
    pairs = _products(blocks["d"], blocks["scales"]).reshape(len(data), -1, 2)
    larger = np.take_along_axis(pairs, np.abs(pairs).argmax(-1)[..., None], -1)[..., 0]
    step = _halves(larger / np.float32(4))
    divisor = np.where(step == 0, np.float32(1), step.astype(np.float32))
    with np.errstate(invalid="ignore"):  # decode() refuses what is not finite
        factors = (pairs / divisor[..., None]).reshape(len(data), -1, 1)
        scaled = (quants.view(np.int8) - np.int8(32)).reshape(len(data), -1, 16) * factors
        values = np.clip(np.rint(scaled), -128, 127).astype(np.int8)
    return QuantizedWeight(_rows(values).view(np.uint8), ov.Type.i8, step, None)


_IQ4_VALUES = np.array(IQ4_NL.kvalues, np.int8).view(np.uint8)


def _decode_iq4_nl(data: Bytes) -> QuantizedWeight:
    blocks = _fields(data, _D, ("quants", "16u1"))
    values = _IQ4_VALUES[_rows(_split(blocks["quants"], 16, 4))]
    return QuantizedWeight(values, ov.Type.i8, blocks["d"].copy(), None)


def _decode_iq4_xs(data: Bytes) -> QuantizedWeight:
    blocks = _fields(data, _D, ("high", "<u2"), ("low", "4u1"), ("quants", "128u1"))
    low = _split(blocks["low"], 1, 4)
    high = (blocks["high"][..., None] >> np.arange(0, 16, 2, dtype=np.uint16)) & 3
    scale = _products(blocks["d"], low.astype(np.int32) + (high.astype(np.int32) << 4) - 32)
    values = _IQ4_VALUES[_rows(_split(blocks["quants"], 16, 4))]
    return QuantizedWeight(values, ov.Type.i8, scale, None)


_MXFP4 = (("exponent", "u1"), ("quants", "16u1"))


def _power_of_two(exponent: npt.NDArray[np.uint8]) -> Floats:
    with np.errstate(over="ignore"):  # 255 is e8m0's NaN
        return np.ldexp(np.float32(1), exponent.astype(np.int32) - 127).astype(np.float32)


def _decode_mxfp4(data: Bytes) -> QuantizedWeight:
    blocks = _fields(data, *_MXFP4)
    quants = pack_nibbles(_rows(_split(blocks["quants"], 16, 4)))
    return QuantizedWeight(quants, ov.Type.f4e2m1, _power_of_two(blocks["exponent"]), None)


# The values of f4e2m1, times two.
_MXFP4_VALUES = np.array(MXFP4.kvalues, np.int8)


def _widen_mxfp4(data: Bytes) -> QuantizedWeight:
    """Gives i8 of the same values: kernels for plain matrices know no f4."""
    blocks = _fields(data, *_MXFP4)
    values = _MXFP4_VALUES[_rows(_split(blocks["quants"], 16, 4))].view(np.uint8)
    return QuantizedWeight(values, ov.Type.i8, _power_of_two(blocks["exponent"]) / 2, None)


def _decode_through_floats(kind: Kind) -> Callable[[Bytes], QuantizedWeight]:
    """Rounds to i8 in groups of 32: of types whose weights come from tables of vectors, or whose
    groups of 16 have minimums.
    """

    def decode_rows(data: Bytes) -> QuantizedWeight:
        groups = dequantize(data, kind).reshape(len(data), -1, 32)
        scale = np.abs(groups).max(axis=-1) / np.float32(127)
        divisor = np.where(scale == 0, np.float32(1), scale)
        with np.errstate(invalid="ignore"):  # decode() refuses what is not finite
            values = np.rint(groups / divisor[..., None]).astype(np.int8)
        return QuantizedWeight(_rows(values).view(np.uint8), ov.Type.i8, scale, None)

    return decode_rows


_ROUNDED = (
    *(Kind.Q2_K, Kind.TQ1_0, Kind.TQ2_0, Kind.NVFP4, Kind.IQ1_S, Kind.IQ1_M),
    *(Kind.IQ2_XXS, Kind.IQ2_XS, Kind.IQ2_S, Kind.IQ3_XXS, Kind.IQ3_S),
)
_QUANTIZED: Mapping[Kind, Callable[[Bytes], QuantizedWeight]] = {
    Kind.Q4_0: _decode_q4_0,
    Kind.Q4_1: _decode_q4_1,
    Kind.Q5_0: _decode_q5_0,
    Kind.Q5_1: _decode_q5_1,
    Kind.Q8_0: _decode_q8_0,
    Kind.Q3_K: _decode_q3_k,
    Kind.Q4_K: _decode_q4_or_q5_k,
    Kind.Q5_K: lambda data: _decode_q4_or_q5_k(data, ("high", "32u1")),
    Kind.Q6_K: _decode_q6_k,
    Kind.IQ4_NL: _decode_iq4_nl,
    Kind.IQ4_XS: _decode_iq4_xs,
    Kind.MXFP4: _decode_mxfp4,
    **{kind: _decode_through_floats(kind) for kind in _ROUNDED},
}
_DENSE: Mapping[Kind, tuple[str, ov.Type]] = {
    Kind.F32: ("<f4", ov.Type.f32),
    Kind.F16: ("<f2", ov.Type.f16),
    Kind.BF16: ("<u2", ov.Type.bf16),
}
SUPPORTED_TYPES = tuple(kind.name for kind in (*_DENSE, *_QUANTIZED))


def decode(name: str, kind: Kind, shape: tuple[int, ...], data: Bytes) -> Weight:
    """Turns a tensor's bytes, u8 [rows, bytes per row], into a weight of `shape`.

    Takes temporary memory of a few megabytes beside the result. Raises ConversionError,
    naming the tensor, for another type or for scales that are not finite.
    """
    if kind in _DENSE:
        dtype, element_type = _DENSE[kind]
        return DenseWeight(np.ascontiguousarray(data).view(dtype).reshape(shape), element_type)
    if kind not in _QUANTIZED:
        _refuse(name, kind)
    decode_rows = _QUANTIZED[kind]
    if kind == Kind.MXFP4 and len(shape) < 3:
        decode_rows = _widen_mxfp4
    return _decode_rows(name, shape, [(decode_rows, data)])


def decode_joined(name: str, shape: tuple[int, ...], parts: Sequence[tuple[Kind, Bytes]]) -> Weight:
    """Gives the weight whose rows are those of several tensors, one after the other.

    Where their types differ, f32 or i8 holds them all. Raises ConversionError as `decode` does.
    """
    kinds = {kind for kind, _ in parts}
    if len(kinds) == 1:
        return decode(name, kinds.pop(), shape, np.concatenate([data for _, data in parts]))
    for kind in kinds - _DENSE.keys() - _QUANTIZED.keys():
        _refuse(name, kind)
    if kinds <= _DENSE.keys():
        rows = [dequantize(data, kind) for kind, data in parts]
        return DenseWeight(np.concatenate(rows).reshape(shape), ov.Type.f32)
    return _decode_rows(name, shape, [(_decode_through_floats(kind), data) for kind, data in parts])


def _refuse(name: str, kind: Kind) -> NoReturn:
    raise ConversionError(
        f"tensor {name!r} has type {kind.name}; supported are {', '.join(SUPPORTED_TYPES)}"
    )


def _decode_rows(
    name: str,
    shape: tuple[int, ...],
    parts: Sequence[tuple[Callable[[Bytes], QuantizedWeight], Bytes]],
) -> QuantizedWeight:
    rows = QuantizedRows(sum(len(data) for _, data in parts))
    begin = 0
    for decode_rows, data in parts:
        step = max(1, _CHUNK_BYTES // data.shape[1])
        for start in range(0, len(data), step):
            chunk = decode_rows(data[start : start + step])
            zero_point = chunk.zero_point
            if not np.isfinite(chunk.scale).all() or (
                isinstance(zero_point, np.ndarray) and not np.isfinite(zero_point).all()
            ):
                raise ConversionError(
                    f"tensor {name!r} holds a scale or minimum that is not finite"
                )
            rows.put(begin + start, chunk)
        begin += len(data)
    return rows.weight(shape[:-1])


def decode_transposed(name: str, kind: Kind, shape: tuple[int, ...], data: Bytes) -> DenseWeight:
    """Gives the transposed matrices of a stack [heads, in, out], one below the other.

    Quantised ones become f16, since groups would lie across the transposed rows. Raises
    ConversionError as `decode` does.
    """
    weight = decode(name, kind, shape, data) if kind not in _QUANTIZED else None
    if weight is None:
        values = _halves(dequantize(data, kind)).reshape(shape)
        if not np.isfinite(values).all():
            raise ConversionError(f"tensor {name!r} holds weights that are not finite")
        weight = DenseWeight(values, ov.Type.f16)
    assert isinstance(weight, DenseWeight)
    rows = weight.values.swapaxes(-1, -2).reshape(-1, shape[-2])
    return DenseWeight(np.ascontiguousarray(rows), weight.element_type)
