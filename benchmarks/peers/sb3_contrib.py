"""Stable-Baselines3's contributed algorithms on a case: ``python -m benchmarks.peers.sb3_contrib CASE``.

Prints one line of JSON. What a case does not name stays at the library's default.
"""

from __future__ import annotations

from typing import Any

from sb3_contrib import QRDQN, RecurrentPPO
from stable_baselines3.common.base_class import BaseAlgorithm

from benchmarks.cases import Case, QRDQNCase, RecurrentPPOCase
from benchmarks.peers import sb3
from benchmarks.window import Measurement, RunOptions, parse_options


def qrdqn(case: QRDQNCase, common: dict[str, Any]) -> QRDQN:
    options = sb3.dqn_options(case)
    options["policy_kwargs"] |= {"n_quantiles": case.quantiles}
    return QRDQN(**common, **options)


def recurrent_ppo(case: RecurrentPPOCase, common: dict[str, Any]) -> RecurrentPPO:
    networks = sb3.tanh_networks(case)
    # One LSTM for policy and value, as ours.
    memory = {"lstm_hidden_size": case.memory_size, "shared_lstm": True, "enable_critic_lstm": False}
    return RecurrentPPO(
        **{**common, "policy": "MlpLstmPolicy"}, **sb3.ppo_options(case), policy_kwargs={**networks, **memory}
    )


def build(case: Case, common: dict[str, Any]) -> BaseAlgorithm:
    """Returns the model that does the work of `case`.

    Raises:
      TypeError: no model is known for this kind of case.
    """
    match case:
        case QRDQNCase():
            return qrdqn(case, common)
        case RecurrentPPOCase():
            return recurrent_ppo(case, common)
    raise TypeError(f"expected a QRDQNCase or a RecurrentPPOCase, got {type(case).__name__} ({case.name})")


def run_case(options: RunOptions) -> Measurement:
    """Builds the model of the case and times it."""
    return sb3.run_case(options, "sb3_contrib", build)


def main() -> None:
    print(run_case(parse_options()).to_json())


if __name__ == "__main__":
    main()
