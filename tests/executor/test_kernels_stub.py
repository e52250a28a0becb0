"""The stub that everyone codes against names what the module has."""

import ast
import inspect
from pathlib import Path

import helmsman.executor
from helmsman.executor import _kernels as kernels


def _stub() -> ast.Module:
    found = [Path(folder) / "_kernels.pyi" for folder in helmsman.executor.__path__]
    return ast.parse(next(path for path in found if path.exists()).read_text())


def _names(body: list[ast.stmt]) -> set[str]:
    return {node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def test_the_stub_lists_every_public_name() -> None:
    public = {name for name in dir(kernels) if not name.startswith("_")}
    assert _names(_stub().body) == public


def test_the_stub_lists_every_member() -> None:
    for node in _stub().body:
        if isinstance(node, ast.ClassDef):
            found = inspect.getmembers(getattr(kernels, node.name))
            members = {name for name, _ in found if not name.startswith("_")}
            assert {name for name in _names(node.body) if not name.startswith("_")} == members, node.name


def test_parameters_are_named_as_in_the_stub() -> None:
    """pybind11's docstrings start with the signature."""
    for node in _stub().body:
        if isinstance(node, ast.FunctionDef):
            signature = (getattr(kernels, node.name).__doc__ or "").split("\n", 1)[0]
            for argument in node.args.args:
                assert f"{argument.arg}:" in signature, f"{node.name}: {argument.arg}"
