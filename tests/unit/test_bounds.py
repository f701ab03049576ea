"""A bound is stated beside everything that grows in the long-running processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
EMPTY = {"set", "dict", "list", "deque", "OrderedDict", "defaultdict", "Counter"}
SHORT_LIVED = {
    "AgentStream", "CachingReader", "Cluster", "Dependencies", "FreeCapacity", "Names", "PendingCommand",
    "PreemptionBudget", "VirtualClock", "_Call", "_Classification", "_Judge", "_Numbers", "_Reader",
}  # fmt: skip
"""Classes whose objects live as long as a call, a cycle, a connection or a test."""


def is_empty_container(value: ast.expr) -> bool:
    """Return whether the expression makes a container that has no entries and may get any number of them."""
    match value:
        case ast.Dict(keys=found) | ast.List(elts=found):
            return not found
        case ast.Call(func=ast.Subscript(value=ast.Name(id=name))) | ast.Call(func=ast.Name(id=name)):
            arguments = [] if name == "defaultdict" else value.args
            return name in EMPTY and not arguments and all(each.arg != "maxlen" for each in value.keywords)
    return False


def growing(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yield the class and name of each attribute that `__init__` makes as an empty container, and the docstring below it."""
    for owner in ast.walk(tree):
        for method in owner.body if isinstance(owner, ast.ClassDef) else ():
            if isinstance(owner, ast.ClassDef) and isinstance(method, ast.FunctionDef) and method.name == "__init__":
                for line, below in zip(method.body, [*method.body[1:], None], strict=True):
                    match line:
                        case ast.AnnAssign(target=ast.Attribute(attr=name), value=ast.expr() as value):
                            pass
                        case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                            pass
                        case _:
                            continue
                    if is_empty_container(value):
                        yield owner.name, name, _text(below)


def _text(below: ast.stmt | None) -> str:
    match below:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return text
    return ""


def test_the_bound_of_what_grows_stands_beside_it() -> None:
    missing, seen = [], set()
    for package in ("controller", "nodeagent"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if "embedded" in path.parts:  # the emulated Slurm
                continue
            for owner, name, text in growing(ast.parse(path.read_text())):
                seen.add(owner)
                if owner not in SHORT_LIVED and "Bound: " not in text.replace("\n", " "):
                    missing.append(f"{path.relative_to(ROOT)}: {owner}.{name}")
    assert missing == [], 'add a docstring with "Bound: ..." below each, and keep it true'
    assert seen >= SHORT_LIVED, "these classes have no such attribute"


def test_an_attribute_without_a_bound_is_found() -> None:
    source = """
class Table:
    def __init__(self):
        self._ids: set[str] = set()
        self._names = dict[str, int]()
        \"\"\"Bound: the nodes.\"\"\"
        self._newest = deque(maxlen=5)
        self._zero = 0
"""
    assert list(growing(ast.parse(source))) == [("Table", "_ids", ""), ("Table", "_names", "Bound: the nodes.")]
