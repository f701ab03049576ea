"""Changes of an input: of any bytes, of text, of trees (JSON, msgpack), and of the fields of a message (protobuf).

A mutator takes random numbers, an input and all genuine inputs of the target, and returns another input. It never fails: an input
that it does not understand is left as it is, or changed as bytes.
"""

from tests.fuzz.mutate.mix import MOST_BYTES, SHAPES, Shape, mutated

__all__ = ["MOST_BYTES", "SHAPES", "Shape", "mutated"]
