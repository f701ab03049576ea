"""Finds what may grow in a long-running process: containers, caches, tables of SQLite and files that are appended to.

A container counts when something adds to it after it was made. Constants, results that are built and returned, and containers
that are replaced whole without ever being added to are left out by the syntax alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

BOUND = "Bound: "
_KINDS = {"set", "dict", "list", "deque", "OrderedDict", "defaultdict", "Counter", "bytearray", "WeakSet", "ChainMap"} | {
    "WeakKeyDictionary", "WeakValueDictionary", "Queue", "SimpleQueue", "PriorityQueue", "LifoQueue"
}  # fmt: skip
_LIMITS = {"maxlen", "maxsize"}
_ADDING = {"append", "appendleft", "add", "setdefault", "update", "extend", "extendleft", "insert", "put", "put_nowait"}
_WAITING = {"wait", "sleep", "recv", "recv_into", "accept", "poll", "select", "get"}
_TABLE = re.compile(r"CREATE TABLE(?: IF NOT EXISTS)? (\w+)")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Site:
    """Something that may grow."""

    line: int
    name: str
    bounded: bool
    """True: its bound stands beside it."""


def grown_attributes(source: str) -> frozenset[str]:
    """Return the names of the attributes of any object to which the module with this source adds."""
    return frozenset(_grown(ast.parse(source), of_objects=True))


def sites(source: str, grown: Collection[str] = ()) -> Iterator[Site]:
    """Yield what may grow in the module with this source. `grown`: attributes to which the modules of its package add."""
    tree, lines = ast.parse(source), source.splitlines()
    grown = {*(name for name in grown if not name.startswith("_")), *grown_attributes(source)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from _of_class(node, grown, lines)
        elif isinstance(node, _Function):
            yield from _of_function(node, lines)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _of_schema(node)
    yield from _of_module(tree, lines)


def is_container(value: ast.expr | None) -> bool:
    """Return whether the expression makes a container without a maximum that can be added to."""
    match value:
        case ast.Dict() | ast.List() | ast.Set() | ast.DictComp() | ast.ListComp() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="field"), keywords=keywords):
            factories = [each.value for each in keywords if each.arg == "default_factory"]
            return any(
                _kind(each) in _KINDS or (isinstance(each, ast.Lambda) and is_container(each.body))
                for each in factories
            )
        case ast.Call(func=func, args=arguments, keywords=keywords):
            limited = any(each.arg in _LIMITS for each in keywords) or (_kind(func).endswith("Queue") and arguments)
            is_metric = any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in arguments)
            return _kind(func) in _KINDS and not limited and not is_metric
    return False


def _kind(func: ast.expr) -> str:
    match func:
        case ast.Subscript(value=value):
            return _kind(value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_empty(value: ast.expr | None) -> bool:
    match value:
        case ast.Dict(keys=found) | ast.List(elts=found):
            return not found
        case ast.Call(func=func, args=arguments):
            return _kind(func) in _KINDS | {"field"} and (_kind(func) == "defaultdict" or not arguments)
    return False


def _assigned(statements: Iterable[ast.AST]) -> Iterator[tuple[ast.stmt, ast.expr, ast.expr | None]]:
    """Yield each assignment to a target, or its declaration: the statement, the target and the value."""
    for statement in statements:
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                yield from ((statement, target, value) for target, value in zip(targets, values, strict=False))
            case ast.AnnAssign(target=target, value=value) | ast.Assign(targets=[target], value=value):
                yield statement, target, value


def _of_class(owner: ast.ClassDef, grown: Collection[str], lines: list[str]) -> Iterator[Site]:
    """Yield the attributes that `__init__` makes empty, and those to which something adds.

    An attribute that is assigned in several places states its bound at one of them. One that is annotated as read-only is
    replaced whole, which the type checker sees to.
    """
    stated, found = BOUND in (ast.get_docstring(owner) or ""), dict[str, int]()
    bounded, read_only = set[str](), set[str]()
    methods = [each for each in owner.body if isinstance(each, _Function)]
    init = next((each.body for each in methods if each.name == "__init__"), None)
    for block in [owner.body, *(each for method in methods for each in _blocks(method))]:
        below = _followers(block)
        for statement, target, value in _assigned(block):
            match target:
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if block is not owner.body:
                    pass
                case ast.Name(id=name) if block is owner.body:
                    pass
                case _:
                    continue
            if _is_read_only(statement):
                read_only.add(name)
            elif is_container(value) and (name in grown or (block is init and _is_empty(value))):
                found.setdefault(name, statement.lineno)
            if _is_bounded(statement, below.get(id(statement)), lines):
                bounded.add(name)
    for name in found.keys() - read_only:
        yield Site(found[name], f"{owner.name}.{name}", stated or name in bounded)


def _followers(block: list[ast.stmt]) -> dict[int, ast.stmt]:
    """Return the next statement of each one in the block, by identity."""
    return {id(each): following for each, following in pairwise(block)}


def _is_read_only(statement: ast.stmt) -> bool:
    """Return whether the annotation lets nothing be added."""
    annotation = ast.unparse(statement.annotation) if isinstance(statement, ast.AnnAssign) else ""
    return annotation.startswith(("Mapping", "Sequence", "Collection", "frozenset", "tuple"))


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield every list of statements within a function."""
    for each in ast.walk(node):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(each, name, None)
            if isinstance(block, list):
                yield block


def _grown(scope: ast.AST, *, of_objects: bool = False) -> Iterator[str]:
    """Yield the names of the variables to which something within the scope adds; `of_objects`: of the attributes."""
    for node in ast.walk(scope):
        match node:
            case ast.Call(func=ast.Attribute(value=target, attr=verb)) if verb in _ADDING:
                pass
            case (
                ast.Subscript(value=target, ctx=ast.Store()) | ast.AugAssign(target=target, op=ast.Add() | ast.BitOr())
            ):
                pass
            case _:
                continue
        match target:
            case ast.Attribute(attr=name) if of_objects:
                yield name
            case ast.Name(id=name) if not of_objects:
                yield name


def _of_module(tree: ast.Module, lines: list[str]) -> Iterator[Site]:
    """Yield the containers of a module to which its functions add."""
    functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    grown = {name for function in functions for name in set(_grown(function)) - set(_local_names(function))}
    below = _followers(tree.body)
    for statement, target, value in _assigned(tree.body):
        if is_container(value) and isinstance(target, ast.Name) and target.id in grown:
            yield Site(statement.lineno, target.id, _is_bounded(statement, below.get(id(statement)), lines))


def _local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    yield from (each.arg for each in ast.walk(function) if isinstance(each, ast.arg))
    shared = {name for each in ast.walk(function) if isinstance(each, ast.Global) for name in each.names}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in shared:
            yield node.id


def _of_function(function: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> Iterator[Site]:
    """Yield an unlimited cache of results, files that the function appends to, and containers that its endless loops add to."""
    stated = BOUND in (ast.get_docstring(function) or "")
    for decorator in function.decorator_list:
        unlimited = (
            ast.unparse(decorator).endswith((".cache", "maxsize=None)", "lru_cache(None)"))
            or _kind(decorator) == "cache"
        )
        if unlimited and function.args.args:  # without arguments there is one result
            yield Site(function.lineno, f"{function.name}()", stated or _is_bounded(decorator, None, lines))
    for node in ast.walk(function):
        match node:
            case ast.Call(func=func, args=arguments) if _kind(func) == "open" and _appends(arguments):
                yield Site(node.lineno, f"{function.name}(): a file", stated or _is_bounded(node, None, lines))
            case ast.Attribute(attr="O_APPEND"):
                yield Site(node.lineno, f"{function.name}(): a file", stated or _is_bounded(node, None, lines))
    yield from _of_loops(function, stated, lines)


def _appends(arguments: list[ast.expr]) -> bool:
    return any(
        isinstance(each, ast.Constant) and isinstance(each.value, str) and re.fullmatch(r"a[bt+]*", each.value)
        for each in arguments
    )


def _of_loops(function: ast.FunctionDef | ast.AsyncFunctionDef, stated: bool, lines: list[str]) -> Iterator[Site]:
    """Yield the local containers that are made before an endless loop which waits, and added to within it."""
    loops = [node for node in ast.walk(function) if isinstance(node, ast.While) and _is_endless(node)]
    for loop in loops:
        grown = set(_grown(loop))
        for statement, target, value in _assigned(ast.walk(function)):
            inside = loop.lineno <= statement.lineno <= (loop.end_lineno or 0)
            if is_container(value) and isinstance(target, ast.Name) and target.id in grown and not inside:
                bounded = stated or _is_bounded(statement, None, lines)
                yield Site(statement.lineno, f"{function.name}(): {target.id}", bounded)


def _is_endless(loop: ast.While) -> bool:
    """Return whether the loop waits for something, and may last as long as the process."""
    ends = ast.walk(loop.test)
    lasts = isinstance(loop.test, ast.Constant) or any(
        isinstance(each, ast.Attribute) and each.attr == "is_set" for each in ends
    )
    return lasts and any(
        isinstance(node, ast.Await | ast.Yield) or (isinstance(node, ast.Attribute) and node.attr in _WAITING)
        for node in ast.walk(loop)
    )


def _of_schema(text: ast.Constant) -> Iterator[Site]:
    """Yield the tables of a schema. Their bounds are comments of SQL on the lines before them."""
    assert isinstance(text.value, str)
    bounded = False
    for line in text.value.splitlines():
        if found := _TABLE.search(line):
            yield Site(text.lineno, f"table {found[1]}", bounded or BOUND in line)
        bounded = line.startswith("--") and (bounded or BOUND in line)


def _is_bounded(node: ast.expr | ast.stmt, below: ast.stmt | None, lines: list[str]) -> bool:
    """Return whether the bound stands in the docstring below, in a comment on the same lines, or in the comment above."""
    match below:
        case ast.Expr(value=ast.Constant(value=str(text))) if BOUND in f"{text} ".replace("\n", " "):
            return True
    if any(BOUND in line.partition("#")[2] for line in lines[node.lineno - 1 : node.end_lineno]):
        return True
    above = node.lineno - 2
    while above >= 0 and lines[above].lstrip().startswith("#"):
        if BOUND in lines[above]:
            return True
        above -= 1
    return False
