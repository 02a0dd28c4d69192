"""Acts with shipped modes: in the test's process, or as the script of a fresh one (``SHIPMENTS ANSWERS``)."""

import pickle
import sys
from pathlib import Path

from minding.engine.types import LaneContext


def play(collect, evaluate, obs):
    record = collect.forward(obs, eps=0.5)
    answers = {"first": record, "second": collect.forward(obs, eps=0.5), "random": collect.forward(obs, random=True)}
    answers["greedy"] = {"action": evaluate.forward(obs)}
    if "value" in record:
        answers["state"] = {"value": collect.value(obs)}
    return {f"{name}.{field}": array for name, fields in answers.items() for field, array in fields.items()}


def halve(weights):
    for array in weights.values():
        array *= 0.5


def act(shipment):
    """Rebuilds the two modes of a shipment and plays before and after their weights change."""
    lane = LaneContext(shipment["index"], {name: array.copy() for name, array in shipment["weights"].items()})
    modes = [factory(lane) for factory in shipment["factories"]]
    before = play(*modes, shipment["obs"])
    halve(lane.weights)
    for refresh in lane.on_refresh:
        refresh()
    return {"before": before, "after": play(*modes, shipment["obs"])}


def peak_memory():
    """In kB; `resource.getrusage` would tell that of the parent."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def main(shipments, answers):
    made = {name: act(shipment) for name, shipment in pickle.loads(Path(shipments).read_bytes()).items()}  # noqa: S301
    process = {"mindspore": "mindspore" in sys.modules, "kilobytes": peak_memory()}
    Path(answers).write_bytes(pickle.dumps((made, process)))


if __name__ == "__main__":
    main(*sys.argv[1:])
