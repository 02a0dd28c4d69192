"""d3rlpy on a case of recorded data: ``python -m benchmarks.peers.d3rlpy CASE``; prints one line of JSON.

What a case does not name stays at the library's default, which the settings of minding's algorithms equal; batches are
drawn by its own buffer and its progress bar and logs are off.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import torch
from d3rlpy.algos import AWACConfig, BCConfig, CQLConfig, IQLConfig, TD3PlusBCConfig
from d3rlpy.constants import ActionSpace
from d3rlpy.dataset import MDPDataset
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.models import VectorEncoderFactory

from benchmarks.cases import OfflineCase
from benchmarks.recorded import episodes
from benchmarks.window import Measurement, RunOptions, measure, parse_options

CONFIGS = {"iql": IQLConfig, "awac": AWACConfig, "td3_bc": TD3PlusBCConfig, "bc": BCConfig, "cql": CQLConfig}


def options_of(case: OfflineCase) -> dict[str, Any]:
    """What a case says, in the words of d3rlpy."""
    encoder = VectorEncoderFactory(hidden_units=list(case.hidden), activation="relu")
    common = {"batch_size": case.batch_size, "gamma": case.gamma, "actor_encoder_factory": encoder}
    if case.algorithm == "bc":
        del common["actor_encoder_factory"]
        return {**common, "encoder_factory": encoder, "learning_rate": case.learning_rate}
    if case.algorithm == "iql":
        common["value_encoder_factory"] = encoder
    return {
        **common,
        "critic_encoder_factory": encoder,
        "critic_learning_rate": case.learning_rate,
        "actor_learning_rate": 1e-4 if case.algorithm == "cql" else case.learning_rate,
    }


def dataset_of(case: OfflineCase) -> MDPDataset:
    parts = list(episodes(case))
    ends = np.zeros(case.rows, np.float32)
    ends[case.episode_length - 1 :: case.episode_length] = 1
    return MDPDataset(
        observations=np.concatenate([part["obs"][:-1] for part in parts]),
        actions=np.concatenate([part["action"] for part in parts]),
        rewards=np.concatenate([part["reward"] for part in parts]),
        terminals=np.zeros(case.rows, np.float32),
        timeouts=ends,
        action_space=ActionSpace.CONTINUOUS,
    )


def run_case(options: RunOptions) -> Measurement:
    case = options.case
    assert isinstance(case, OfflineCase)
    torch.set_num_threads(case.threads)
    torch.manual_seed(options.seed)
    np.random.seed(options.seed)
    data = dataset_of(case)
    model = CONFIGS[case.algorithm](**options_of(case)).create(device="cpu")

    def train_for(steps: int) -> int:
        with contextlib.redirect_stdout(io.StringIO()):
            model.fit(
                data, n_steps=steps, n_steps_per_epoch=steps, show_progress=False, save_interval=1_000_000,
                logger_adapter=NoopAdapterFactory(),
            )  # fmt: skip
        return steps

    return measure(options, "d3rlpy", train_for)


def main() -> None:
    print(run_case(parse_options()).to_json())


if __name__ == "__main__":
    main()
