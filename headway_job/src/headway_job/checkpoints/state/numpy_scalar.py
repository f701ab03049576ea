"""NumPy's scalars in a state, such as the best loss of a scheduler: their type and bytes, without a pickle.

NumPy is neither needed nor imported by jobs that have no such scalar.
"""

from __future__ import annotations

import base64
import re
import sys
from typing import Any, Dict, List, Optional

KIND = "numpy"
"""Key of the object that stands for a scalar."""
_KNOWN = re.compile(r"[<>|=](?:[biufc][0-9]{1,2}|[mM]8(?:\[[0-9]*[A-Za-z]{1,2}\])?)")
"""Descriptions of types (numpy.dtype.str): truth values, numbers, and times."""


def encoded(value: Any) -> Optional[Dict[str, List[str]]]:
    """Return the object for a scalar; None = it is none, or of a type that has no fixed bytes."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.generic) or type(value) is not value.dtype.type:
        return None
    if not _KNOWN.fullmatch(value.dtype.str):
        return None
    return {KIND: [value.dtype.str, base64.b64encode(value.tobytes()).decode()]}


def decoded(row: List[str]) -> Any:
    """Return the scalar. Raises ValueError or TypeError for another row, and ImportError without NumPy."""
    name, text = row
    if not _KNOWN.fullmatch(name):
        raise ValueError(f"its text has the unknown NumPy type {name[:40]!a}")
    import numpy

    (found,) = numpy.frombuffer(base64.b64decode(text, validate=True), dtype=numpy.dtype(name))
    return found
