"""The parameters of a policy, and the moments of observations that belong to them: saved, restored and compared."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from minding.engine.config.named import module_of
from minding.engine.data.batch import Recorded
from minding.engine.data.statistics import RunningMoments
from minding.engine.errors import CheckpointError
from minding.engine.process import runtime
from minding.engine.process.runtime import nn
from minding.engine.types import Array, StateDict
from minding.policies.networks.encoder import normalizers_of

_NET, _TARGET, _MOMENTS = "net.", "target.", "moments."
"""Prefixes of the names of parameters and of saved moments."""
_BLOCK = 1 << 16
"""Number of recorded rows whose observations are added to the moments at a time."""
_OTHER_NETWORK = (
    "it belongs to another network; build the policy from the config.yaml of the run that saved it, with the same code"
)


class Weights:
    """The parameters of a root cell by name, and its normalizers."""

    def __init__(self, name: str, net: nn.Cell, root: nn.Cell) -> None:
        self.name, self.net = name, net
        self.params = dict(root.parameters_and_names())
        self.normalizers = normalizers_of(root)

    @property
    def network(self) -> str:
        """The class of the network, as ``module:Class``."""
        return f"{module_of(type(self.net))}:{type(self.net).__qualname__}"

    def live(self) -> dict[str, Array]:
        """The arrays that acting needs, by parameter name; on CPU they are live views."""
        acting = {id(p) for p in self.net.get_parameters()}
        return {name: p.asnumpy() for name, p in self.params.items() if id(p) in acting}

    # Moments.

    def observe(self, seen: Mapping[str, Array]) -> None:
        """Adds observations ``(n, ...)``, by row field, to the moments."""
        moments = {name: RunningMoments.of(x.reshape(len(x), math.prod(x.shape[1:]))) for name, x in seen.items()}
        for field, normalizer in self.normalizers.values():
            if field in moments:
                normalizer.merge(moments[field])

    @property
    def observed_fields(self) -> list[str]:
        """Names of the row fields of which there are moments."""
        return list(dict.fromkeys(field for field, _ in self.normalizers.values()))

    def take(self, recorded: Recorded) -> None:
        """Before the first step, sets the moments to those of all recorded steps. In a resumed run, or for a policy
        that is trained further, they already exist and stay unchanged, because the weights were learned with them."""
        empty = [field for field, normalizer in self.normalizers.values() if not normalizer.moments.count]
        for start in range(0, recorded.steps if empty else 0, _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, recorded.steps))
            self.observe({field: recorded.read(field, rows) for field in empty})

    def give_moments(self, root: nn.Cell) -> None:
        """Gives the normalizers of another root cell, by row field, the moments of these."""
        own = dict(self.normalizers.values())
        for field, normalizer in normalizers_of(root).values():
            normalizer.moments.load_state_dict(own[field].moments.state_dict())
            runtime.assign(normalizer.center, own[field].center.asnumpy())
            runtime.assign(normalizer.scale, own[field].scale.asnumpy())

    # State.

    def state_dict(self) -> StateDict:
        """The network's class, copies of all parameters by name (networks, targets, optimizers), and moments."""
        return {
            "network": self.network,
            "params": {name: p.asnumpy().copy() for name, p in self.params.items()},
            "moments": {name: n.moments.state_dict() for name, (_, n) in self.normalizers.items()},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Writes saved values into the live parameters, in place, so that compiled graphs use them. The saved state
        must hold every parameter of this root, and no parameter of the acting network that it lacks."""
        saved = state["params"]
        self._check(state["network"], saved, {name: p.asnumpy() for name, p in self.params.items()})
        for name, p in self.params.items():
            runtime.assign(p, saved[name])
        for name, (_, normalizer) in self.normalizers.items():
            normalizer.moments.load_state_dict(state["moments"][name])

    def acting_arrays(self) -> tuple[dict[str, Array], str]:
        """The arrays that acting needs, by name, and the class of the network: the network's parameters and the moments
        of its observations."""
        arrays = {name: p.asnumpy().copy() for name, p in self.params.items() if name.startswith(_NET)}
        for name, (_, normalizer) in self.normalizers.items():
            if name.startswith(_NET):
                state = normalizer.moments.state_dict()
                arrays |= {f"{_MOMENTS}{name}/{key}": np.asarray(value) for key, value in state.items()}
        return arrays, self.network

    def load_acting_arrays(self, arrays: Mapping[str, Array], network: str) -> None:
        """Writes saved acting weights into the live parameters. Target networks get the same weights; all other state
        stays."""
        self._check(network, arrays, self.acting_arrays()[0])
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise CheckpointError(f"{self.name}: {name!r} holds NaN or infinity")
        for name, p in self.params.items():
            if (source := _online(name)) in arrays:
                runtime.assign(p, arrays[source])
        for name, (_, normalizer) in self.normalizers.items():
            saved = f"{_MOMENTS}{_online(name)}"
            if f"{saved}/mean" in arrays:
                state: StateDict = {key: arrays[f"{saved}/{key}"] for key in normalizer.moments.state_dict()}
                normalizer.moments.load_state_dict(state)

    def _check(self, network: str, saved: Mapping[str, Array], known: Mapping[str, Array]) -> None:
        """Refuses saved arrays of another class of network, or that differ from the known ones; names of parts beside
        the acting network and its moments may be surplus, since a policy built for fewer modes lacks them."""
        if _identity(network) != _identity(self.network):
            raise CheckpointError(
                f"{self.name}: the checkpoint holds a network of class {network}, but this one is {self.network}: "
                "build the policy with the class that was trained"
            )
        surplus = [name for name in saved if name.startswith((_NET, _MOMENTS)) and name not in known]
        if surplus:
            raise CheckpointError(
                f"{self.name}: the checkpoint has {len(surplus)} parameters that this network lacks, the first of them "
                f"{surplus[0]!r}: {_OTHER_NETWORK}"
            )
        for name, here in known.items():
            if name not in saved:
                raise CheckpointError(f"{self.name}: the checkpoint has no parameter {name!r}: {_OTHER_NETWORK}")
            given = saved[name]
            if given.shape != here.shape or given.dtype != here.dtype:
                raise CheckpointError(
                    f"{self.name}: parameter {name!r} is {given.dtype} {given.shape} in the checkpoint, {here.dtype} "
                    f"{here.shape} here: {_OTHER_NETWORK}"
                )


def _identity(network: str) -> str:
    """What a saved ``module:Class`` is compared by: of the package's own networks only the class, whose file may move;
    of all others the module, too."""
    module, _, name = network.partition(":")
    return f"minding:{name}" if module.partition(".")[0] == "minding" else network


def _online(name: str) -> str:
    """The name of the acting network's parameter whose value a target network starts with; other names unchanged."""
    return _NET + name.removeprefix(_TARGET) if name.startswith(_TARGET) else name
