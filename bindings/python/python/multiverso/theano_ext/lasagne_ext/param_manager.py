"""All parameters of a Lasagne network, synchronised at once.

    network = build_model()
    lpm = param_manager.LasagneParamManager(network)
    ...                                 # train
    lpm.sync_all_param()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multiverso.theano_ext.param_manager import MVModelParamManager

__all__ = ["LasagneParamManager", "MVNetParamManager"]


class LasagneParamManager(MVModelParamManager):
    """Synchronises the network that ends in this layer, or in these layers."""

    def get_all_param_values(self) -> Sequence[Any]:
        """``lasagne.layers.get_all_param_values(network)``."""
        return list(_layers().get_all_param_values(self.model))

    def set_all_param_values(self, params: list[Any]) -> None:
        """``lasagne.layers.set_all_param_values(network, params)``."""
        _layers().set_all_param_values(self.model, params)


class MVNetParamManager(LasagneParamManager):
    """The manager of the oldest scripts, with ``update_all_param()``.

    ``is_master`` was true in the process whose values everybody starts from. That is the master worker's here, as in
    all later versions, whatever is given.
    """

    def __init__(self, network: Any, is_master: bool = True) -> None:
        self.is_master = bool(is_master)
        super().__init__(network)

    def update_all_param(self) -> None:
        """``sync_all_param`` by its oldest name."""
        self.sync_all_param()


def _layers() -> Any:
    from syncline._frameworks import framework

    return framework(
        "LasagneParamManager", "lasagne", install="pip install Lasagne==0.1 (see docs/frameworks.md)"
    ).layers
