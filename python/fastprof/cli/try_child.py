"""One run of ``fastprof try``: the program with interventions, up to the step that is wanted.

    python -c "from fastprof.cli.try_child import main; ..." PLAN [-m MODULE | SCRIPT] ARGS

``fastprof try`` starts this; PLAN is the file of a :class:`~fastprof.trial.model.Plan`.
"""

import os
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastprof.trial
from fastprof.cli.exit_hooks import Endings, complain
from fastprof.cli.target import execute, load_package, prepare_or_run
from fastprof.fileio import atomic_write
from fastprof.guards import own_errors
from fastprof.integrations import torch_loop
from fastprof.session.patching.importing import TorchImport
from fastprof.session.profiler import Profiler, run_of
from fastprof.trial.changes import Changes
from fastprof.trial.interventions import BY_ID
from fastprof.trial.losses import Losses
from fastprof.trial.model import Answer, Plan
from fastprof.trial.recording import Enough, StepEnds


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program once; return its exit status, 0 after the last wanted step."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    plan = Plan.from_json(Path(arguments[0]).read_text(encoding="utf-8"))
    as_module = arguments[1] == "-m"
    load_package(fastprof.trial)
    target = prepare_or_run(arguments[2 if as_module else 1 :], as_module=as_module)
    if isinstance(target, int):
        return target
    return _Run(plan).execute(target)


class _Run:
    """The run of one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._changes = Changes(observe=plan.observe)
        self._losses = Losses()
        self._answered = False
        self._process = os.getpid()
        self._ends = StepEnds(
            plan.steps, plan.seconds, plan.least, self._changes.first_step_ended, self._answer
        )
        self._profiler = Profiler(
            functions="auto" if plan.observe else False,
            log_every=0,
            recorder={"worker_functions": "auto"} if plan.observe else None,
        )

    def execute(self, target: Any) -> int:
        """Run the program up to the last step that is wanted."""
        run = run_of(self._profiler)
        run.gives_way = True
        run.functions.is_called = False
        run.functions.folds_imports = True
        run.parts.append(self._ends)
        try:
            return execute(target, self._start, Endings(self._profiler.stop, self._save))
        except Enough:
            return 0

    def _start(self) -> None:
        plan = self._plan
        self._profiler.start()
        self._profiler.enter_phase("setup")
        for name, values in plan.apply.items():
            BY_ID[name].apply(self._changes, values)
        if plan.observe:
            self._changes.watch_logging()
        random.seed(plan.seed)
        TorchImport(self._seed_numpy, "numpy").watch()
        TorchImport(self._torch_imported).watch()

    def _seed_numpy(self) -> None:
        numpy: Any = sys.modules["numpy"]
        numpy.random.seed(self._plan.seed)

    def _torch_imported(self) -> None:
        torch_loop.attach(self._profiler)
        torch: Any = sys.modules["torch"]
        torch.manual_seed(self._plan.seed)
        self._changes.install(torch)
        self._losses.watch(torch)

    def _answer(self) -> None:
        """Write what was measured; at the last step, or at the program's end."""
        if self._answered or os.getpid() != self._process:
            return
        self._answered = True
        calls = tuple(  # not the links of a folder that is gone afterwards (--scratch)
            replace(call, file=call.file and os.path.realpath(call.file))
            for call in self._changes.calls
        )
        answer = Answer(
            tuple(self._ends.ends_ns),
            tuple(self._losses.values()),
            calls,
            _facts(),
            self._changes.applied,
        )
        with atomic_write(self._plan.answer) as stream:
            stream.write(answer.to_json().encode())

    def _save(self) -> None:
        self._answer()
        if not self._profiler.running:
            self._profiler.report().save(self._plan.run)


def _facts() -> dict[str, Any]:
    torch: Any = sys.modules.get("torch")
    facts: dict[str, Any] = {}
    try:
        if torch is not None:
            facts["threads"] = torch.get_num_threads()
            facts["cuda"] = bool(torch.cuda.is_initialized())
    except own_errors() as error:
        complain(f"torch's settings are unknown: {error}")
    return facts
