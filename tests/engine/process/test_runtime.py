"""The set-up of MindSpore and its self-test, and the guard against recompilation."""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace

import fresh
import numpy as np
import pytest
from fakes import refuses

from minding.engine.errors import CodeError, SetupError
from minding.engine.process import floats, runtime, self_test
from minding.engine.process.compiled import Compiled, RecompileWarning
from minding.engine.process.runtime import cache_dir, ms, nn, to_device

OURS = (*runtime.environment(), *runtime.CONVOLUTION_ENVIRONMENT)
run_fresh = functools.partial(fresh.run_fresh, quiet=False, without=OURS)


def test_the_process_is_prepared_before_mindspore_loads(tmp_path):
    script = """
import gc, os
from minding.engine.errors import SetupError
from minding.engine.process import runtime
assert not runtime.is_loaded() and "MS_DEV_HOST_BLOCKING_RUN" not in os.environ
looked = gc.get_stats()[2]["collections"]
runtime.ms
# Its objects take a fifth of a second to look through again and again; they are old now, and can still be freed.
assert gc.get_stats()[2]["collections"] == looked and gc.isenabled() and gc.get_freeze_count() == 0
assert len(gc.get_objects(2)) > 50_000
assert "ONEDNN_MAX_CPU_ISA" not in os.environ
try:
    # An absent device is an error before any work.
    runtime.prepare(runtime.Settings("GPU"))
except SetupError as error:
    print(error)
runtime.prepare(runtime.Settings("CPU", convolutions=True))
print(runtime.is_loaded(), runtime.device())
for name in ("MS_DEV_HOST_BLOCKING_RUN", "ONEDNN_MAX_CPU_ISA", "MS_DEV_RUNTIME_CONF", "GLOG_v", "MS_OM_PATH"):
    print(os.environ[name])
print(os.path.isdir(os.environ["MS_OM_PATH"]))
# Products in NumPy use one thread, whatever the environment says.
import numpy, threadpoolctl
print({pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"})
"""
    threads = {"OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"}
    refusal, *lines = run_fresh(script, XDG_CACHE_HOME=str(tmp_path), GLOG_v="4", **threads)
    assert refusal.startswith("device='GPU' was asked for, but there is none here")
    expected = ["True CPU", "1", "AVX2", "new_pipeline:false", "4", str(tmp_path / "minding"), "True", "{1}"]
    assert lines == expected


def test_algorithms_are_known_without_loading_mindspore():
    script = """
import sys
import minding.policies, minding.middleware, minding.engine.buffers, minding.configs
from minding.configs import compile_run, load_preset
from minding.engine.process import runtime
cfg = compile_run(load_preset("cartpole_ppo"))
print("mindspore" in sys.modules, cfg.policy.type)
runtime.ms
print(runtime.is_loaded())
"""
    assert run_fresh(script) == ["False ppo", "True"]


@pytest.mark.parametrize(
    ("settings", "threads"), [({}, [1, 2]), ({"short_graphs": True}, [1, 1]), ({"threads": 2}, [2, 2])]
)
def test_short_graphs_are_dispatched_by_one_thread(settings, threads, monkeypatch):
    asked = []
    monkeypatch.setattr(runtime, "run_small_graph", lambda module: asked.append("small graph"))
    tuning = SimpleNamespace(threads_num=asked.append)
    module = SimpleNamespace(
        device_context=SimpleNamespace(cpu=SimpleNamespace(op_tuning=tuning)),
        runtime=SimpleNamespace(dispatch_threads_num=asked.append),
    )
    runtime._prepare_cpu(runtime.Settings("CPU", **settings), module)
    assert [each for each in asked if each != "small graph"] == threads
    # With several kernel threads it comes before, where nothing else has been asked for.
    assert asked.index("small graph") == (1 if "threads" in settings else 2)


@pytest.mark.slow
def test_a_fork_after_mindspore_computed_is_refused():
    script = """
import os, sys
from minding.engine.errors import SetupError
from minding.engine.process import runtime
tensor = runtime.to_device(__import__("numpy").ones(2))
child = os.fork()
if child == 0:
    for call in (runtime.load, lambda: runtime.ms, lambda: runtime.to_device(tensor)):
        try:
            call()
            os._exit(1)
        except SetupError as error:
            assert "get_context('spawn')" in str(error)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
runtime.load()
"""
    run_fresh(script)


def test_two_kernel_threads_compute_what_one_does():
    script = """
from minding.engine.process import runtime
import numpy as np
runtime.prepare(runtime.Settings(threads=2))
x = np.arange(9, dtype=np.float32).reshape(3, 3)
product = runtime.load().jit(runtime.ops.MatMul())(runtime.to_device(x), runtime.to_device(x))
print(np.array_equal(product.asnumpy(), x @ x))
"""
    assert run_fresh(script)[-1] == "True"


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"XDG_CACHE_HOME": "", "HOME": "/dev/null"}, "/dev/null/.cache/minding cannot be written: Not a directory"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/proc"}, "/proc/.cache/minding cannot be written"),
        ({"XDG_CACHE_HOME": "/dev/full"}, "/dev/full/minding cannot be written: Not a directory"),
        ({"XDG_CACHE_HOME": "", "HOME": None}, "this user has no home folder"),
    ],
)
def test_without_a_cache_folder_there_is_a_temporary_one(variables, reason, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    for name, value in variables.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    # No such user: without HOME nobody knows the home folder.
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    cache_dir.cache_clear()
    folder = cache_dir()
    cache_dir.cache_clear()
    assert folder.is_dir()
    assert folder.parent == tmp_path / "tmp"
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]
    assert reason in caplog.text


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="only root becomes another user")
def test_a_user_without_a_home_gets_through_the_self_test(tmp_path):
    # It may read everything, because Python itself may lie in somebody's home, and write nothing.
    user = "setpriv --reuid=54321 --regid=54321 --clear-groups --inh-caps=+dac_read_search"
    command = [*user.split(), "--ambient-caps=+dac_read_search", sys.executable, "-m", "minding", "doctor"]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    kept = {k: v for k, v in os.environ.items() if k not in (*runtime.environment(), "HOME", "XDG_CACHE_HOME")}
    done = subprocess.run(command, capture_output=True, text=True, env={**kept, "PYTHONPATH": path}, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("no cache folder (this user has no home folder)")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("asked", "present", "told"),
    [
        ("auto", True, "minding has not been run on Ascend: `minding docs devices` .*; device=CPU is tested$"),
        ("Ascend", True, "minding has not been run on Ascend: `minding docs devices` "),
        ("auto", False, None),
        ("CPU", True, None),
    ],
)
def test_a_device_on_which_minding_was_not_run_is_told_once(asked, present, told, monkeypatch, caplog):
    monkeypatch.setattr(runtime, "_state", runtime._State())
    monkeypatch.setattr(runtime, "_has_driver", lambda name: present)
    monkeypatch.setattr(runtime, "_prepare_cpu", lambda settings, module: None)
    monkeypatch.setattr(runtime, "run_small_graph", lambda module: None)
    runtime._warn_once.cache_clear()
    chosen = []
    module = SimpleNamespace(set_device=chosen.append, hal=SimpleNamespace(is_available=lambda name: present))
    for _ in range(2):
        runtime._apply(runtime.Settings(asked), module)
    assert chosen == ["Ascend" if present and asked != "CPU" else "CPU"] * 2
    assert len(caplog.messages) == (told is not None)
    if told:
        assert re.match(told, caplog.messages[0])


def test_arrays_go_to_the_device_without_a_copy():
    array = np.zeros(3, np.float32)
    tensor = to_device(array)
    array[1] = 5.0
    assert tensor.asnumpy().tolist() == [0.0, 5.0, 0.0]
    array.setflags(write=False)
    assert to_device(array).asnumpy().tolist() == [0.0, 5.0, 0.0]
    assert to_device(np.arange(4.0).reshape(2, 2).T).asnumpy().tolist() == [[0.0, 2.0], [1.0, 3.0]]
    number = runtime.to_device(np.array(2, np.float32))
    assert (number.size, number.dtype, float(number)) == (1, ms.float32, 2.0)


class Double(nn.Cell):
    @ms.jit
    def construct(self, x):
        return x + x


def ones(*shape, dtype=np.float32):
    return to_device(np.ones(shape, dtype))


def test_inputs_of_new_shapes_are_reported():
    double = Compiled(Double(), "double", expected=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (2, 3, 2, 3):
            assert double(ones(size)).asnumpy().tolist() == [2.0] * size
    assert double.signatures == 2
    with pytest.warns(RecompileWarning, match=r"'double' is recompiled \(time 3\).*keep batch sizes constant"):
        double(ones(4))
    with pytest.warns(RecompileWarning, match=r"\(time 4\).*int32"):
        double(ones(4, dtype=np.int32))
    assert double(ones(4)).asnumpy().tolist() == [2.0] * 4
    assert double.signatures == 4
    double = Compiled(Double(), "double")
    for constant in (np.ones(2, np.float32), 1.0, 3, None):
        refuses(TypeError, (f"input 0: expected a Tensor, got {type(constant).__name__}", lambda c=constant: double(c)))
    assert double.signatures == 0


class Twice(nn.Cell):
    """Counts its runs in a parameter."""

    def __init__(self):
        super().__init__()
        self.runs = ms.Parameter(ms.Tensor(np.zeros(1, np.float32)), name="runs")

    @ms.jit
    def construct(self, x):
        ms.ops.assign_add(self.runs, x[:1] * 0 + 1)
        return x + x, x * self.runs


def test_every_call_runs_once_with_the_parameters_of_now():
    cell = Twice()
    twice = Compiled(cell, "twice", expected=2)
    for run in range(1, 5):
        size = 2 + run % 2
        double, product = twice(ones(size))
        assert double.asnumpy().tolist() == [2.0] * size
        assert product.asnumpy().tolist() == [run] * size
    assert cell.runs.asnumpy().tolist() == [4.0]
    runtime.assign(cell.runs, np.array([10.0], np.float32))
    assert twice(ones(2))[1].asnumpy().tolist() == [11.0, 11.0]


def test_a_lack_of_memory_in_a_graph_is_a_memory_error(monkeypatch):
    told = "Memory isn't enough and alloc failed, kernel name: x/Custom-op0, alloc size: 819200000B."

    def lack(*inputs):
        raise RuntimeError(f"\n-----\n- Memory not enough:\n-----\n{told}\n")

    double = Compiled(Double(), "double")
    with monkeypatch.context() as lacking:
        lacking.setattr(double, "_cell", lack)
        refuses(MemoryError, ("819,200,000 bytes", lambda: double(ones(2))))
    double(ones(2))
    double._graphs = dict.fromkeys(double._graphs, lack)
    refuses(MemoryError, ("819,200,000 bytes", lambda: double(ones(2))))


class Caught(nn.Cell):
    @ms.jit
    def construct(self, x):
        try:
            return x + x
        except ValueError:
            return x


class Misshapen(nn.Cell):
    @ms.jit
    def construct(self, x):
        return matrix_product(x)


def matrix_product(x):
    return ms.ops.ones((2, 3)) @ ms.ops.ones((4, 5))  # a mistake


class Stacked(nn.Cell):
    @ms.jit
    def construct(self, x):
        return ms.ops.stack([x, x[0]])  # an operator that is checked in Python


def line_of(text):
    lines = Path(__file__).read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if line.lstrip().startswith(text))


@pytest.mark.parametrize(
    ("cell", "reason", "line"),
    [
        (Caught, "Unsupported statement 'Try'", "class Caught"),
        (Misshapen, r"shape1\[-1\] must be equal to shape2\[-2\]", "return ms.ops.ones((2, 3))"),
        (Stacked, "For 'Stack', the len of x_shape", "return ms.ops.stack("),
    ],
)
def test_a_users_cell_that_does_not_compile_is_one_line(cell, reason, line, capfd):
    place = rf"\({re.escape(__file__)}:{line_of(line)}\)"
    told = rf"^{__name__}:{cell.__name__} does not compile: .*{reason}.* {place}"
    with pytest.raises(CodeError, match=told) as found:
        Compiled(cell(), "own")(ones(2))
    assert "\n" not in str(found.value)
    assert capfd.readouterr().err == ""


# The check of an installation by a compiled gradient and by denormal numbers


def test_the_self_test_takes_a_gradient_and_reports():
    found = self_test.self_test()
    assert found["mindspore"].startswith("2.10")
    assert found["device"] == "CPU"
    assert found["compiled gradient"].startswith("ok in ")
    assert found["denormal numbers"] == "zero"


def sum_of_cubes(x):
    return (x * x * x).sum()


def test_the_self_test_notices_wrong_gradients_and_denormals(monkeypatch):
    with monkeypatch.context() as change:
        change.setattr(self_test, "_sum_of_squares", sum_of_cubes)
        refuses(SetupError, ("[3.0, 12.0, 27.0], expected [2, 4, 6]", self_test.self_test))
    monkeypatch.setattr(floats, "flush_denormals", lambda function: function)
    refuses(SetupError, ("denormal numbers are kept", self_test.self_test))


def test_silence_holds_for_what_python_has_not_written_yet():
    code = "from minding.engine.process.runtime import silent\nwith silent(1): print('noise')\nprint('said')"
    assert fresh.run_fresh(code, PYTHONUNBUFFERED="") == ["said"]
