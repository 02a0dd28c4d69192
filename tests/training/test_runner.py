"""A run asks its chain what it runs on."""

import pytest
from easydict import EasyDict

from minding import training
from minding.configs import compile_run
from minding.configs.chains import Chain
from minding.engine.chain.context import OnlineRLContext
from minding.engine.run.run_dir import RunDir
from minding.training import assembly, runner


class Ended(Exception):
    """Ends a run whose context has been seen."""


class OwnContext(OnlineRLContext):
    """The context of a chain of one's own."""


def test_a_run_has_the_context_of_its_chain(monkeypatch, tmp_path):
    seen = []

    def fill(task, cfg, policy):
        seen.append(type(task.ctx))
        raise Ended

    for module in (assembly, runner):
        monkeypatch.setattr(module, "get_chain", lambda name: Chain(fill, OwnContext))
    monkeypatch.setattr(assembly, "make_policy", lambda cfg: None)
    cfg = compile_run(EasyDict(env={"env_id": "CartPole-v1"}, policy={"type": "ppo"}), [f"run.out_dir={tmp_path}"])
    with pytest.raises(Ended):
        training.train(cfg, RunDir.create(cfg), progress=False)
    assert seen == [OwnContext]
