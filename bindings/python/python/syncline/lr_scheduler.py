"""Learning rates that follow the number of updates: plain data that an optimizer carries to the servers.

    schedule = sl.lr_scheduler.FactorScheduler(step=1000, factor=0.5, base_lr=0.1)
    kv.set_optimizer(sl.optimizer.SGD(lr_scheduler=schedule))

A schedule is a function of the number of updates alone: ``schedule(n)`` gives the same rate whenever it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from syncline import _native
from syncline._errors import ConfigurationError

__all__ = ["CosineScheduler", "FactorScheduler", "LRScheduler", "MultiFactorScheduler", "PolyScheduler", "from_dict"]


class LRScheduler:
    """What all schedules share: a warm-up of so many updates to ``base_lr``, then the schedule's own way down."""

    name: ClassVar[str] = ""

    def __init__(self, arguments: dict[str, Any] | None = None) -> None:
        """``arguments`` are the local names of a schedule's own ``__init__``: what it was given."""
        if not self.name or arguments is None:
            raise TypeError("LRScheduler is what the schedules have in common\nhint: make one of them")
        settings = {name: value for name, value in arguments.items() if name not in ("self", "__class__")}
        self._settings: dict[str, Any] = {"name": self.name, **settings}
        self(0)  # refuses what makes no sense

    def __call__(self, num_update: int) -> float:
        """The rate after so many updates."""
        return _native.schedule_rate(self._settings, num_update)

    def to_dict(self) -> dict[str, Any]:
        """Its name and settings as plain data; ``from_dict`` is the way back."""
        return dict(self._settings)

    def __getattr__(self, name: str) -> Any:
        if name != "_settings" and name in self._settings:
            return self._settings[name]
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    def __eq__(self, other: object) -> bool:
        return self._settings == other._settings if isinstance(other, LRScheduler) else NotImplemented

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        settings = (f"{name}={value!r}" for name, value in self._settings.items() if name != "name")
        return f"{type(self).__name__}({', '.join(settings)})"

    def __reduce__(self) -> Any:
        return from_dict, (self.to_dict(),)


class FactorScheduler(LRScheduler):
    """Times ``factor`` after every ``step`` updates, never below ``stop_factor_lr``."""

    name = "factor"

    def __init__(
        self,
        step: int,
        factor: float = 1.0,
        stop_factor_lr: float = 1e-8,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(locals())


class MultiFactorScheduler(LRScheduler):
    """Times ``factor`` after each of the updates in ``step``, which ascend."""

    name = "multifactor"

    def __init__(
        self,
        step: Sequence[int],
        factor: float = 1.0,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: str = "linear",
    ) -> None:
        step = [int(each) for each in step]
        super().__init__(locals())


class PolyScheduler(LRScheduler):
    """From ``base_lr`` to ``final_lr`` at ``max_update``, as the power ``pwr`` of what is left of the way."""

    name = "poly"

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        pwr: float = 2.0,
        final_lr: float = 0.0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(locals())


class CosineScheduler(LRScheduler):
    """From ``base_lr`` to ``final_lr`` at ``max_update``, along half a cosine."""

    name = "cosine"

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        final_lr: float = 0.0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0.0,
        warmup_mode: str = "linear",
    ) -> None:
        super().__init__(locals())


_KINDS: dict[str, type[LRScheduler]] = {
    each.name: each for each in (FactorScheduler, MultiFactorScheduler, PolyScheduler, CosineScheduler)
}


def from_dict(settings: dict[str, Any]) -> LRScheduler:
    """The schedule that ``to_dict`` described."""
    kind = _KINDS.get(settings.get("name", ""))
    if kind is None:
        raise ConfigurationError(f"lr_scheduler: {settings.get('name')!r} is not one of {', '.join(_KINDS)}")
    return kind(**{name: value for name, value in settings.items() if name != "name"})
