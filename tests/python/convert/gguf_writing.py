"""Ends of GGUF files that several tests write."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType as Kind


def add_tensor(
    writer: gguf.GGUFWriter, name: str, values: np.ndarray[Any, Any], kind: Kind
) -> None:
    """As `kind`; vectors as f32."""
    if values.ndim == 1 or kind is Kind.F32:
        writer.add_tensor(name, values)
    else:
        writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)


def finish(writer: gguf.GGUFWriter) -> None:
    """Writes the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
