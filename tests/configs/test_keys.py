"""One knob, one place: every key of the configuration is read by something."""

import ast
from pathlib import Path

import minding.configs
from minding.engine.config import RUN_SCHEMA
from minding.engine.options import Option
from minding.envs import config_schema
from minding.policies import ALGORITHMS

ROOT = Path(minding.configs.__file__).resolve().parent.parent
FOLDERS = ("engine", "middleware", "policies", "envs", "configs", "src/minding/cli")
# Here keys are declared or given values; that is not reading them.
DECLARATIONS = {"engine/config.py", "policies/schemas.py", "envs/config.py"}


def leaves(schema, prefix=""):
    for key, node in schema.items():
        if isinstance(node, Option):
            yield f"{prefix}{key}"
        else:
            yield from leaves(node, f"{prefix}{key}.")


def words_read():
    """Attribute names and short texts in the code, which is how a key can be read."""
    words = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if name in DECLARATIONS or (folder == "configs" and "main_config = " in path.read_text()):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    words.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    words.update(node.value.split(".") if len(node.value) < 60 else ())
    return words


def test_every_key_is_read_by_something():
    schemas = {"": RUN_SCHEMA, "env.": config_schema()}
    schemas |= {f"{name}: policy.": algorithm.config_schema() for name, algorithm in ALGORITHMS.items()}
    keys = [key for prefix, schema in schemas.items() for key in leaves(schema, prefix)]
    words = words_read()
    assert [key for key in keys if key.rpartition(".")[2] not in words] == []
