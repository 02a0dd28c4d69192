"""Names of other libraries' settings and algorithms answer with ours."""

import re

import pytest
from pages import ROOT

from minding.engine.config.compiler import setting_paths
from minding.engine.config.config import Config
from minding.engine.config.options import setting_at
from minding.policies import ALGORITHMS
from minding.policies.settings.other_libraries import _NEAREST, _SAME, SETTINGS, relative


def test_answers_are_ours_and_what_they_answer_for_is_not():
    known = {path for each in ALGORITHMS.values() for path in setting_paths(each.config_schema(), "policy.")}
    known |= set(setting_paths(Config.options()))
    assert {answer.partition(": ")[0] for each in SETTINGS.values() for answer in each} <= known
    assert {ours for ours, _ in _SAME.values()} | _NEAREST.keys() <= {*ALGORITHMS, ""}
    theirs = [*_SAME, *" ".join(_NEAREST.values()).split()]
    assert len({*theirs}) == len(theirs)
    assert not {*theirs} & {name.replace("_", "") for name in ALGORITHMS}
    for name, (ours, remark) in _SAME.items():
        for setting in re.findall(r"policy\.([\w.]+)", remark):
            # A remark without an algorithm is about those for recorded data.
            assert setting_at(ALGORITHMS[ours or "iql"].config_schema(), setting) is not None, name


@pytest.mark.parametrize("spelling", ["BCQ", "bcq", "TD3+BC", "td3_bc", "Discrete-CQL", "QR-DQN", "DDQN"])
def test_a_counterpart_is_found_whatever_the_spelling(spelling):
    assert any(f"{name!r}" in relative(spelling, ALGORITHMS) for name in ALGORITHMS)
    assert relative("no such algorithm", ALGORITHMS) == ""


def test_the_page_on_stable_baselines3_has_the_same_answers():
    sections = (ROOT / "docs" / "from_stable_baselines3.md").read_text().split("\n## ")
    (settings,) = [text for text in sections if "n_epochs" in text]
    rows = [line.split(" | ") for line in settings.splitlines() if line.startswith("| `")]
    answered = [(name, here) for theirs, here in rows for name in re.findall(r"`(\w+)`", theirs) if name in SETTINGS]
    assert len(answered) > 10
    for name, here in answered:
        assert any(answer.partition(": ")[0] in here for answer in SETTINGS[name]), name
