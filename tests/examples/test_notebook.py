"""The notebook runs from top to bottom, with less training, and shows the output of a run in order."""

import importlib.util
import json
import os
import re

import pytest
from test_examples import EXAMPLES, ROOT

NOTEBOOK = EXAMPLES / "notebook.ipynb"
LESS = {"50_000": "2_048", "20_000": "2_048", "evaluate(100)": "evaluate(2)", "evaluate(20)": "evaluate(2)"}


def test_the_notebook_has_the_output_of_a_run_from_top_to_bottom():
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert [output["output_type"] for output in outputs].count("display_data") == 2
    assert any("return 500.0" in "".join(output.get("text", "")) for output in outputs)


@pytest.mark.slow
def test_the_notebook_runs_with_less_training(tmp_path, monkeypatch):
    for package in ("nbclient", "ipykernel", "matplotlib"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install -c constraints.txt -e '.[dev]'")
    import nbclient
    import nbformat

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    source = "".join(cell["source"] for cell in notebook["cells"])
    for many, few in LESS.items():
        assert many in source
        for cell in notebook["cells"]:
            cell["source"] = cell["source"].replace(many, few)
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    returns = [value for each in outputs for value in re.findall(r"return (-?[\d.]+) \(95 %", each.get("text", ""))]
    assert len(returns) == 2
    assert float(returns[0]) > 0
    assert sum("image/png" in each.get("data", {}) for each in outputs) == 2
    assert len([*(tmp_path / "runs").iterdir()]) == 2
