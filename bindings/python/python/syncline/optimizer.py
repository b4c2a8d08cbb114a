"""What a server does with a gradient: optimizers as plain data, never code.

    kv.set_optimizer(sl.optimizer.Adam(learning_rate=0.001, wd=1e-4))
    kv.set_optimizer(sl.optimizer.create("sgd", learning_rate=0.1, momentum=0.9))
    kv.set_optimizer(sl.optimizer.Custom("m = 0.9*m + g; w -= lr * (m + wd*w)", learning_rate=0.1))

Options and defaults are those of MXNet. An option that was read may be changed, ``opt.learning_rate = 0.01`` or
``opt.set_learning_rate(0.01)``; stores that were given the optimizer learn of it, wherever their servers are.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping
from typing import Any, ClassVar, dataclass_transform

from syncline import _native
from syncline._errors import ConfigurationError
from syncline.lr_scheduler import (
    CosineScheduler,
    FactorScheduler,
    LRScheduler,
    MultiFactorScheduler,
    PolyScheduler,
)
from syncline.lr_scheduler import from_dict as _schedule_from_dict

__all__ = [
    "DCASGD",
    "FTML",
    "LAMB",
    "LARS",
    "NAG",
    "SGD",
    "SGLD",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "Adamax",
    "CosineScheduler",
    "Custom",
    "FactorScheduler",
    "Ftrl",
    "LRScheduler",
    "MultiFactorScheduler",
    "Nadam",
    "Optimizer",
    "PolyScheduler",
    "RMSProp",
    "Signum",
    "Test",
    "create",
    "from_dict",
]

Key = int | str


@dataclass_transform(kw_only_default=True)
class _Described:
    """A class whose annotated attributes are its options: by keyword, with MXNet's defaults, those of its bases too."""

    _described: ClassVar[dict[str, inspect.Parameter]] = {}
    __dataclass_transform__: ClassVar[dict[str, Any]]  # the decorator leaves it here
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        options = dict(cls._described)
        for option, annotation in inspect.get_annotations(cls).items():
            if option in cls.__dict__ and not annotation.startswith("ClassVar"):
                keyword = inspect.Parameter.KEYWORD_ONLY
                options[option] = inspect.Parameter(option, keyword, default=cls.__dict__[option], annotation=annotation)
                delattr(cls, option)  # an optimizer's own value is looked up when it is asked for
        cls._described = options
        if "__init__" not in cls.__dict__:
            cls.__signature__ = inspect.Signature(list(options.values()), return_annotation=None)


class Optimizer(_Described):
    """What all optimizers share: a name and options, each of which is an attribute.

    ``learning_rate`` None takes the schedule's rate, or else the method's own; it reads as the rate of the next update, as far
    as this process knows, with a schedule as that of the first. ``lr_mult`` and ``wd_mult`` are factors by key.
    ``param_idx2name`` gives names to whole-number keys: those that end neither in ``_weight`` nor in ``_gamma`` then have no
    weight decay, and multipliers by name reach them.
    """

    name: ClassVar[str] = ""

    learning_rate: float = None  # type: ignore[assignment]
    wd: float = 0.0
    rescale_grad: float = 1.0
    clip_gradient: float | None = None
    lr_scheduler: LRScheduler | None = None
    begin_num_update: int = 0
    multi_precision: bool = False
    lr_mult: Mapping[Key, float] = {}  # noqa: RUF012
    wd_mult: Mapping[Key, float] = {}  # noqa: RUF012
    param_idx2name: Mapping[int, str] | None = None

    def __init__(self, **options: Any) -> None:
        if not self.name:
            raise TypeError("Optimizer is what the optimizers have in common\nhint: sl.optimizer.create(name, …)")
        names = dict(options.pop("param_idx2name", None) or {})
        object.__setattr__(self, "_names", names)
        object.__setattr__(self, "_stores", weakref.WeakSet())
        object.__setattr__(self, "_options", {})
        self._options.update(self._checked(options))
        if names:
            self.set_wd_mult(self._options["wd_mult"])

    def _checked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        plain = dict(options)
        if isinstance(schedule := plain.get("lr_scheduler"), LRScheduler):
            plain["lr_scheduler"] = schedule.to_dict()
        for option in ("lr_mult", "wd_mult", "params"):
            if plain.get(option) is not None:
                plain[option] = dict(plain[option])  # a mapping, or pairs as `to_dict` has them
        for option, value in plain.items():
            # NumPy's numbers are numbers; its arrays are not.
            if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
                plain[option] = value.item()
        return _native.optimizer_options(self.name, plain)

    def _change(self, **options: Any) -> None:
        checked = self._checked({**self._options, **options})
        self._options.clear()
        self._options.update(checked)
        for store in list(self._stores):
            store._optimizer_changed(self)

    def rate(self, num_update: int) -> float:
        """The learning rate after so many updates, before the multipliers of a key."""
        return _native.optimizer_rate(self.name, self._options, num_update)

    def set_learning_rate(self, lr: float) -> None:
        """Changes the rate from now on, in the stores that have this optimizer too. Not with a schedule."""
        if self._options["lr_scheduler"] is not None:
            raise ConfigurationError(f"{self.name}: the learning rate is left to the schedule of this optimizer")
        self._change(learning_rate=lr)

    def set_lr_mult(self, args_lr_mult: Mapping[Key, float]) -> None:
        """The rates of keys relative to the others'; replaces what was set before."""
        self._change(lr_mult=self._by_index(args_lr_mult))

    def set_wd_mult(self, args_wd_mult: Mapping[Key, float]) -> None:
        """The weight decay of keys relative to the others'; replaces what was set before."""
        spared = {
            index: 0.0 for index, name in self._names.items() if not name.endswith(("_weight", "_gamma"))
        }
        self._change(wd_mult={**spared, **self._by_index(args_wd_mult)})

    def _by_index(self, multipliers: Mapping[Key, float]) -> dict[Key, float]:
        named = {name: index for index, name in self._names.items()}
        return {named.get(key, key) if isinstance(key, str) else key: value for key, value in multipliers.items()}

    def to_dict(self) -> dict[str, Any]:
        """Its name and all options as plain data that JSON can hold; ``from_dict`` is the way back."""
        plain = {"name": self.name, **self._options}
        for option in ("lr_mult", "wd_mult"):
            # As pairs: in JSON the keys of a dictionary are names, and 3 is not "3".
            plain[option] = [[key, number] for key, number in plain[option].items()]
        return plain

    def __getattr__(self, option: str) -> Any:
        options = self.__dict__.get("_options", {})
        if option not in options:
            raise AttributeError(f"{type(self).__name__} has no option {option!r}")
        if option == "learning_rate":
            return self.rate(options["begin_num_update"])
        value = options[option]
        return _schedule_from_dict(value) if option == "lr_scheduler" and value is not None else value

    def __setattr__(self, option: str, value: Any) -> None:
        if option == "learning_rate":
            self.set_learning_rate(value)
        elif option in self._options:
            self._change(**{option: value})
        else:
            raise AttributeError(f"{type(self).__name__} has no option {option!r}; it has {', '.join(self._options)}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Optimizer):
            return NotImplemented
        return (self.name, self._options) == (other.name, other._options)

    __hash__ = None  # type: ignore[assignment]  # it may change

    def __repr__(self) -> str:
        defaults = {} if self.name == "custom" else _native.optimizer_options(self.name, {})
        plain = {"lr_mult": {}, "wd_mult": {}, "params": {}, "wd": 0.0, "rescale_grad": 1.0, "begin_num_update": 0}
        usual = {**plain, "multi_precision": False, **defaults}
        shown = (
            f"{option}={getattr(self, option)!r}"
            for option, value in self._options.items()
            if value != usual.get(option)
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def __reduce__(self) -> Any:
        return from_dict, (self.to_dict(),)


class SGD(Optimizer):
    """w -= lr*(g + wd*w), with ``momentum`` through m = momentum*m - lr*(g + wd*w); w += m.

    ``lazy_update``: of a row-sparse gradient only the rows that are there count.
    """

    name = "sgd"

    momentum: float = 0.0
    lazy_update: bool = True


class NAG(Optimizer):
    """SGD with Nesterov's momentum."""

    name = "nag"

    momentum: float = 0.0


class Signum(Optimizer):
    """Steps of one size along the sign of the momentum; ``wd_lh`` is Loshchilov and Hutter's weight decay."""

    name = "signum"

    momentum: float = 0.9
    wd_lh: float = 0.0


class FTML(Optimizer):
    """Follow the moving leader."""

    name = "ftml"

    beta1: float = 0.6
    beta2: float = 0.999
    epsilon: float = 1e-8


class DCASGD(Optimizer):
    """SGD that makes up for gradients that come late."""

    name = "dcasgd"

    momentum: float = 0.0
    lamda: float = 0.04


class SGLD(Optimizer):
    """SGD with noise: Langevin dynamics. The noise follows ``seed``, key, count and place, and nothing else."""

    name = "sgld"

    seed: int = 0


class Adam(Optimizer):
    """Adaptive moments; the rate is 0.001 unless given."""

    name = "adam"

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    lazy_update: bool = True


class AdamW(Optimizer):
    """Adam whose weight decay does not pass through the moments; the rate is 0.001 unless given."""

    name = "adamw"

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    correct_bias: bool = True


class AdaGrad(Optimizer):
    """A rate per number that falls with the squares of its gradients."""

    name = "adagrad"

    eps: float = 1e-7


class RMSProp(Optimizer):
    """AdaGrad with a memory that fades, or with ``centered`` Graves' version; the rate is 0.001 unless given."""

    name = "rmsprop"

    gamma1: float = 0.9
    gamma2: float = 0.9
    epsilon: float = 1e-8
    centered: bool = False
    clip_weights: float | None = None


class AdaDelta(Optimizer):
    """Steps as large as the last ones, without a learning rate."""

    name = "adadelta"

    rho: float = 0.9
    epsilon: float = 1e-5


class Ftrl(Optimizer):
    """Follow the regularised leader; the rate is 0.1 unless given."""

    name = "ftrl"

    lamda1: float = 0.01
    beta: float = 1.0


class Adamax(Optimizer):
    """Adam with a maximum for the second moment; the rate is 0.002 unless given."""

    name = "adamax"

    beta1: float = 0.9
    beta2: float = 0.999


class Nadam(Optimizer):
    """Adam with Nesterov's momentum; the rate is 0.001 unless given."""

    name = "nadam"

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    schedule_decay: float = 0.004


class LAMB(Optimizer):
    """Adam for large batches: the step of an array follows its norm; the rate is 0.001 unless given."""

    name = "lamb"

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    lower_bound: float | None = None
    upper_bound: float | None = None
    bias_correction: bool = True


class LARS(Optimizer):
    """SGD for large batches: the rate of an array follows its norm."""

    name = "lars"

    momentum: float = 0.0
    lazy_update: bool = True
    eta: float = 0.001
    eps: float = 0.0
    momentum_correction: bool = True


class Test(Optimizer):
    """w += rescale_grad*g: what tests of stores use."""

    name = "test"
    __test__ = False  # pytest: not what it looks like


class Custom(Optimizer):
    """A formula of your own: ``Custom("m = beta*m + g; w -= lr * (m + wd*w)", params={"beta": 0.9})``.

    Names: ``w`` the weight, ``g`` the gradient (rescaled and clipped), ``lr``, ``wd``, ``t`` the number of this update. A name
    that is read before it is written is kept from update to update, zero at first; one that is written first is a
    shorthand. There are + - * / and comparisons, abs sqrt exp log sign min max, where(condition, then, else) and
    clip(x, low, high). The text is checked here and compiled to loops by the servers; it can do nothing else.
    """

    name = "custom"

    def __init__(
        self,
        update: str,
        *,
        params: Mapping[str, float] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(update=update, params=params, **common)


_KINDS: dict[str, type[Optimizer]] = {
    each.name: each
    for each in (
        *(SGD, NAG, Signum, FTML, DCASGD, SGLD, Adam, AdamW, AdaGrad, RMSProp),
        *(AdaDelta, Ftrl, Adamax, Nadam, LAMB, LARS, Test, Custom),
    )
}


def create(name: str, /, **options: Any) -> Optimizer:
    """The optimizer of this name, in any case, with these options; those that are absent have MXNet's defaults."""
    if not isinstance(name, str):
        raise TypeError(f"the name of an optimizer is a str, not {type(name).__name__}")
    kind = _KINDS.get(name.lower())
    if kind is None:
        raise ConfigurationError(f"optimizer: no optimizer is called {name!r}; there are {', '.join(_KINDS)}")
    made: Optimizer = kind.__new__(kind)
    Optimizer.__init__(made, **options)
    return made


def from_dict(plain: Mapping[str, Any]) -> Optimizer:
    """The optimizer that ``to_dict`` described."""
    options = dict(plain)
    return create(options.pop("name", ""), **options)
