"""Functions and their arguments on the way to another process of this program.

A function travels by name, as pickle does it, wherever the other process can import its module. One that was typed into a
notebook, an interactive session or ``python -c`` has no such module: its byte code travels, together with what it
names (functions of the same notebook, imported modules, picklable values). These bytes go to processes that this
program started itself, through memory only they share; nothing here ever reads what came from a network.
"""

from __future__ import annotations

import _pickle as pickle  # what `pickle` is made of, without the modules that it loads besides
import builtins
import functools
import importlib
import io
import marshal
import os
import sys
import types

from syncline._errors import ConfigurationError

TYPE_CHECKING = False  # the module `typing` would be a tenth of what a process needs to start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


def dumps(given: Any, what: str) -> bytes:
    """``given`` as bytes; ``what`` names it in the error."""
    try:
        return pickle.dumps(given, 5) if main_is_a_file() else _by_value(given)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigurationError(
            f"{what} cannot travel to another process: {error}\n"
            "hint: give a function that stands at the top level of a module, and picklable arguments; "
            "or run it in threads of this process: processes=False"
        ) from error


def invitation(channels: Any) -> bytes:
    """Channels as they are given to a process that is started."""
    return pickle.dumps(channels, 5)


def loads(data: bytes) -> Any:
    """The reverse, in the other process."""
    return pickle.loads(data)


def main_is_a_file() -> bool:
    """Whether another process can import what ``__main__`` defines."""
    main = sys.modules.get("__main__")
    if main is None or getattr(main, "__spec__", None) is not None:
        return True  # python -m package
    file = getattr(main, "__file__", None)
    return file is not None and os.path.exists(file)


def _by_value(given: Any) -> bytes:
    out = io.BytesIO()
    _Pickler(out, 5).dump(given)
    return out.getvalue()


class WithClosures:
    """An object whose functions travel by their code where they have no name to travel by; it arrives as the object itself."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    def __reduce__(self) -> Any:
        out = io.BytesIO()
        _Pickler(out, 5, closures=True).dump(self.inside)
        return loads, (out.getvalue(),)


def with_closures(given: Any) -> Any:
    """``given``, so that functions in it may be closures: what they close over is copied."""
    return WithClosures(given)


class _Pickler(pickle.Pickler):
    """Pickles functions that no other process could import as their code, and modules by name."""

    def __init__(self, out: io.BytesIO, protocol: int, closures: bool = False) -> None:
        super().__init__(out, protocol)
        self.closures = closures

    def reducer_override(self, given: Any) -> Any:
        if isinstance(given, types.ModuleType):
            return importlib.import_module, (given.__name__,)
        if isinstance(given, types.FunctionType) and self.has_no_home(given):
            if given.__closure__ and not self.closures:
                names = ", ".join(given.__code__.co_freevars)
                raise pickle.PicklingError(f"the function {given.__qualname__} is a closure over {names}")
            # The globals come after the function itself, which may be among them.
            skeleton = (marshal.dumps(given.__code__), given.__name__, given.__qualname__, len(given.__closure__ or ()))
            closed_over = [cell.cell_contents for cell in given.__closure__ or ()]
            state = (given.__defaults__, given.__kwdefaults__, dict(_globals_of(given)), closed_over)
            return _empty_function, skeleton, state, None, None, _fill_function
        if isinstance(given, type) and given.__module__ == "__main__":
            raise pickle.PicklingError(f"the class {given.__qualname__} was defined in a session, not in a module")
        return NotImplemented

    def has_no_home(self, function: types.FunctionType) -> bool:
        if function.__module__ == "__main__" and not main_is_a_file():
            return True
        return self.closures and ("<locals>" in function.__qualname__ or function.__name__ == "<lambda>")


def _globals_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _names(code: types.CodeType) -> set[str]:
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*inner)


def _empty_function(code: bytes, name: str, qualname: str, cells: int) -> types.FunctionType:
    closure = tuple(types.CellType() for _ in range(cells))
    function = types.FunctionType(marshal.loads(code), {"__name__": "__main__", "__builtins__": builtins}, name, None, closure)
    function.__qualname__ = qualname
    return function


def _fill_function(function: types.FunctionType, state: tuple[Any, Any, dict[str, Any], list[Any]]) -> None:
    function.__defaults__, function.__kwdefaults__, names, closed_over = state
    function.__globals__.update(names)
    for cell, content in zip(function.__closure__ or (), closed_over, strict=True):
        cell.cell_contents = content


def name_of(function: Callable[..., Any]) -> str:
    """The function's name for errors and progress bars."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def globals_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The names that a function sees; those of the module that defines it where it is an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)  # a method
    names: dict[str, Any] | None = getattr(function, "__globals__", None)
    if names is not None:
        return names
    module = importlib.import_module(getattr(function, "__module__", None) or type(function).__module__)
    return vars(module)
