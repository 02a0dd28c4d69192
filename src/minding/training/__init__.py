"""Turns a compiled configuration into a run, and loads the policy of a run folder."""

from minding.training.assembly import build, check_runnable, join_msrun, make_policy
from minding.training.evaluation import Evaluation, evaluate, final_evaluation, record
from minding.training.export import Export, export_run, open_exported
from minding.training.loading import Trained, check_begin, load_policy
from minding.training.recording import check_recordable, record_data, record_random
from minding.training.session import Session, Summary, train

__all__ = [
    "Evaluation",
    "Export",
    "Session",
    "Summary",
    "Trained",
    "build",
    "check_begin",
    "check_recordable",
    "check_runnable",
    "evaluate",
    "export_run",
    "final_evaluation",
    "join_msrun",
    "load_policy",
    "make_policy",
    "open_exported",
    "record",
    "record_data",
    "record_random",
    "train",
]
