"""``fastprof run``: a whole training job under the profiler, without changes to it.

Exit statuses: the program's own, whatever happens to the profile; 2 if the program was not started
(an unknown option, an invalid value, no place for the output, another profiler active).
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TextIO

from fastprof.cli.exit_hooks import Endings, complain
from fastprof.cli.folders import files_since, link_latest, ranks_here, remove_if_empty, run_folder
from fastprof.cli.job import LATER, job_lines, others_counted
from fastprof.cli.launch import launch
from fastprof.cli.output import check_output, save_or_keep, standard_output
from fastprof.cli.parsing import Options
from fastprof.cli.progress import Progress
from fastprof.cli.summary import last_lines, print_summary
from fastprof.cli.target import Target, execute, parse_target, prepare_or_run
from fastprof.clock import time
from fastprof.export.pstats_ import stats_data, stats_dict
from fastprof.fileio import atomic_write, resolve_output
from fastprof.integrations import torch_loop
from fastprof.ranks.live.now import JobNow
from fastprof.render.screen import closed_lines
from fastprof.results.report import Report
from fastprof.session.cprofile import Profile
from fastprof.session.environment.overhead import overhead_from, overhead_or_default
from fastprof.session.environment.rank import Identity
from fastprof.session.environment.signals import VARIABLE as SIGNAL
from fastprof.session.environment.signals import catch, signal_from
from fastprof.session.environment.step_limit import VARIABLE
from fastprof.session.operators.profile import OperatorProfile
from fastprof.session.output.files import path_of_rank
from fastprof.session.output.trace import TraceOptions
from fastprof.session.outside.reach import Reach
from fastprof.session.patching.imports import LightImports
from fastprof.session.profiler import Profiler, run_of
from fastprof.tables.findings import closing_lines
from fastprof.tables.layout import width_of, wrapped

OUTPUT = "fastprof_out"
FILES = ("train_profile.stats", "train_profile.fprof")

STATS, RUN = FILES

_USAGE = (
    "fastprof run [--nproc N] [--functions | --operators] [--trace]\n"
    "                    [--steps N] [--operator KEY=VALUE] [--gpu MODE]\n"
    "                    [--modules PATTERN] [--signal NAME] [--full] [-o DIR]\n"
    "                    [-m MODULE | SCRIPT] [ARG] ..."
)

#: The defaults: a window of three steps, after one skipped step and one of warm-up.
_OPERATORS = {
    "enable_cpu_profiling": True,
    "enable_cuda_profiling": "auto",
    "schedule.enable_schedule": True,
}

#: Steps between metrics, the source of the progress line.
_PROGRESS_EVERY = 10

#: The clock of the file system may be this far behind ours.
_CLOCKS_NS = 100_000_000

#: ``--gpu`` -> the option of the same name of ``Profiler``.
_GPU: dict[str, bool | Literal["auto"]] = {"auto": "auto", "on": True, "off": False}


def run(argv: Sequence[str]) -> int:
    """Profile the program that ``argv`` names; its exceptions pass through."""
    options, args = _parse(list(argv))
    if options.nproc is not None:
        return launch(options.nproc, _without_nproc(argv, args), args, as_module=options.module)
    base = options.output or OUTPUT
    try:
        # The program may change its directory: resolve the paths now.
        base = os.path.abspath(base)
        is_new = options.output is None or not os.path.lexists(base)
        folder = base if options.output is not None else run_folder(base, args[0])
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        complain(f"cannot write to {base!r}: {error.strerror}")
        return 2
    begun = _Begun(folder, _shown(folder), time.time_ns() - _CLOCKS_NS, options)
    process = os.getpid()
    try:
        return _run(begun, args)
    finally:
        # Not in a child that the program forked, and not a folder of the user.
        if is_new and os.getpid() == process:
            remove_if_empty(folder)


def _without_nproc(argv: Sequence[str], args: Sequence[str]) -> list[str]:
    """Return the command's own options without ``--nproc N``."""
    options = iter(argv[: len(argv) - len(args)])
    kept = []
    for option in options:
        if option == "--nproc":
            next(options)
        elif not option.startswith("--nproc="):
            kept.append(option)
    return kept


@dataclass(frozen=True, slots=True)
class _Begun:
    """The output, host, start time and options of a run."""

    folder: str
    #: The folder as the user would type it.
    shown_folder: str
    began_ns: int
    options: Any


def _shown(folder: str) -> str:
    try:
        near = os.path.relpath(folder)
    except OSError:  # the current folder was deleted
        return folder
    return folder if near.startswith("..") else near


def _run(begun: _Begun, args: list[str]) -> int:
    folder, options = begun.folder, begun.options
    # Both options, or neither: record both layers.
    functions = options.functions or not options.operators
    try:
        operators = _operators(options, folder)
        if options.signal is not None:
            # For the processes of the program, too: the signal must not end them.
            os.environ[SIGNAL] = signal_from(options.signal, "--signal")
            catch(os.environ[SIGNAL])
        wanted = options.overhead
        overhead = overhead_or_default(
            None if wanted is None else overhead_from(wanted, "--overhead")
        )
    except (TypeError, ValueError, OSError) as error:
        complain(str(error))
        return 2
    # A stats file without functions would be an empty table.
    paths = [os.path.join(folder, name) for name in (FILES if functions else (RUN,))]
    for path in paths:
        problem = check_output(path)
        if problem is not None:
            complain(problem)
            return 2
    target = prepare_or_run(args, as_module=options.module)
    if isinstance(target, int):
        return target
    if options.steps is not None:
        # For the program, and for the processes that it starts.
        os.environ[VARIABLE] = str(options.steps)
    if operators is None and not _needs_steps(options):
        return _run_functions(target, paths, begun)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    progress = Progress(sys.stderr) if is_terminal else None
    profiler = Profiler(
        functions=functions,
        gpu=_GPU[options.gpu or "auto"],
        operators=operators,
        trace=TraceOptions(save_dir=folder) if options.trace else False,
        logger=progress,
        log_every=_PROGRESS_EVERY if is_terminal else 50,
        # Functions alone: count each call.
        overhead=0.0 if operators is None else overhead,
        recorder={"worker_functions": "auto"},
    )
    if progress is not None:
        progress.last_metrics = lambda: profiler.last_metrics
    return _run_all(target, paths, profiler, begun)


def _needs_steps(options: Any) -> bool:
    return options.steps is not None or options.trace or options.signal is not None


def _operators(options: Any, folder: str) -> OperatorProfile | None:
    """Return the operators that torch.profiler records; None: functions only.

    Raises:
        TypeError, ValueError, OSError: an option is invalid, or contradicts another.
    """
    if options.steps is not None and options.steps < 1:
        raise ValueError(f"--steps is {options.steps}, expected 1 or more")
    if options.functions and not options.operators:
        # Without steps, the last two have no effect: sections are off.
        for name in ("operator", *(() if _needs_steps(options) else ("gpu", "modules"))):
            if getattr(options, name):
                raise ValueError(
                    f"--{name} cannot be combined with --functions; leave one of them out"
                )
        return None
    config: dict[str, Any] = {**_OPERATORS, "save_dir": folder}
    for setting in options.operator:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--operator is {setting!r:.80}, expected KEY=VALUE")
        config[key] = value
    return OperatorProfile.from_config(config)


def _parse(argv: list[str]) -> tuple[Any, list[str]]:
    parser = Options(usage=_USAGE, prog="fastprof run")
    parser.add_option(
        "-o",
        "--output",
        metavar="DIR",
        help=f"folder for {' and '.join(FILES)}; replaces existing files (default: a new folder "
        f"{OUTPUT}/PROGRAM-TIME; {OUTPUT}/latest is a link to it)",
    )
    parser.add_option(
        "--nproc",
        type="int",
        metavar="N",
        help="start N ranks on this machine, by torch's launcher (torchrun)",
    )
    parser.flag("--full", "print all tables instead of one screen")
    parser.flag(
        "--functions",
        "record functions only, and count each call; sections in the code are not recorded",
    )
    parser.flag("--operators", "record operators of torch, without functions")
    parser.flag("--trace", "also write a trace for Perfetto: rank{r}_trace.json.gz in DIR")
    parser.add_option(
        "--overhead",
        metavar="PART",
        help="what fastprof may cost, as a part of the program's time: 1% or 0.01 (default); after "
        "200 steps functions are recorded in as many steps as this pays for; none: in all",
    )
    parser.add_option(
        "--steps",
        type="int",
        metavar="N",
        help="end training after N steps: data loaders stop delivering batches, and FASTPROF_STEPS "
        "is set to N for programs that read it",
    )
    parser.add_option(
        "--signal",
        metavar="NAME",
        help="USR1 or USR2: `kill -USR1 PID` writes now.fprof, a report of the run so far, to DIR, "
        "and the program goes on (without this option: `fastprof report PID`)",
    )
    parser.add_option(
        "--operator",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of fastprof.OperatorProfile, such as record_shapes=true, "
        "schedule.skip_first=10, schedule.enable_schedule=false; can be repeated",
    )
    parser.add_option(
        "--gpu",
        type="choice",
        choices=list(_GPU),
        metavar="MODE",
        help="auto: record the GPU from when the program uses CUDA (default); on: from the "
        "start, which initialises CUDA; off: not at all",
    )
    parser.add_option(
        "--modules",
        action="append",
        default=[],
        metavar="PATTERN",
        help="modules that get separate sections inside forward, by their path in the model, "
        "such as 'layers.*'; can be repeated",
    )
    return parse_target(parser, argv)


def _run_functions(target: Target, paths: Sequence[str], begun: _Begun) -> int:
    profile, identity = Profile(), Identity()
    identity.ask()

    def save() -> Callable[[], None] | None:
        latest, told = time.thread_time() + _END_S, endings.may_wait
        return _finish(profile.report(), paths, begun, identity, lambda: None, told, latest)

    endings = Endings(profile.disable, save)
    return execute(target, profile.enable, endings)


def _run_all(target: Target, paths: Sequence[str], profiler: Profiler, begun: _Begun) -> int:
    # A program with its own Profiler must run as it would without fastprof.
    run = run_of(profiler)
    run.gives_way = True
    # The program's caller is the command, which is not part of it.
    run.functions.is_called = False
    run.parts.of(Reach).output = begun.folder
    # Nearly all contexts of a run come from imports.  With --functions each call counts.
    run.functions.folds_imports = not begun.options.functions

    gave_way = False

    def stop() -> None:
        nonlocal gave_way
        endings.hold()
        gave_way = gave_way or not (profiler.running or stopped)
        if not stopped:
            run.ranks.ask(wait=endings.may_wait)
            stopped.append(True)
        profiler.stop()

    def save() -> Callable[[], None] | None:
        if gave_way:
            why = "the program started its own Profiler"
            complain(f"profiling stopped: {why}")
            run.facts["recorded_until"] = why
        told = endings.may_wait if run.ranks.owns else None
        latest = time.thread_time() + _END_S
        return _finish(profiler.report(), paths, begun, run.identity, run.ranks.job, told, latest)

    stopped: list[bool] = []

    def start() -> None:
        profiler.start()
        profiler.enter_phase("setup")
        if run.functions.folds_imports and run.recorder.backend == "setprofile":
            light = LightImports(run.recorder)
            run.parts.append(light)
            light.install()
        torch_loop.attach(profiler, modules=begun.options.modules)

    endings = Endings(stop, save)
    return execute(target, start, endings)


#: Seconds of CPU, after which the end of a run leaves out what the saved run can make later: many
#: functions, or tracemalloc, which follows each of fastprof's allocations.
_END_S = 5.0
_TOO_LONG = (
    f"The end of this run took more than {_END_S:g} s of CPU, so the screen, and a .stats file not "
    "yet written, are left out. `fastprof report` makes both from the saved run: add -o x.stats."
)


def _finish(
    report: Report,
    paths: Sequence[str],
    begun: _Begun,
    identity: Identity,
    job: Callable[[], JobNow | None],
    may_wait: Callable[[], bool] | None,
    latest: float,
) -> Callable[[], None] | None:
    """Write the files; on the first rank, return what shows the ranks, report and verdict.

    ``may_wait``: whether to wait for other ranks; None: another process is this rank.  ``latest``:
    the CPU time of this thread after which only the saved run is written.
    """
    written = [path_of_rank(path, identity) for path in paths]
    # The small file first, from which a report can make the other: the disk may be almost full.
    lost = []
    for i, path in enumerate(sorted(written, key=lambda path: path.endswith(STATS))):
        if i and time.thread_time() > latest:
            lost.append(path)
            continue
        try:
            if path.endswith(STATS):
                corrected = report.overhead.corrected
                data = stats_data(report.snapshot, correct_times=corrected)
                save_or_keep(path, partial(_save_data, data))
            else:
                save_or_keep(path, report.save)
        except OSError as error:  # the other file and the report are on their own
            lost.append(path)
            complain(f"the profile could not be written: {error}")
    written = [path for path in written if path not in lost]
    if identity.rank != 0:
        return None
    if begun.options.output is None:
        link_latest(begun.folder)
    return partial(_show, report, len(paths) > 1, written, begun, identity, job, may_wait, latest)


def _show(
    report: Report,
    has_functions: bool,
    written: Sequence[str],
    begun: _Begun,
    identity: Identity,
    job: Callable[[], JobNow | None],
    may_wait: Callable[[], bool] | None,
    latest: float,
) -> None:
    if sys.stdout is None:
        return
    try:
        with standard_output() as stream:
            late: list[str] = []
            if identity.world_size > 1 and may_wait is not None:
                ranks, late = _ranks(begun, identity, job, may_wait, width_of(stream))
                _put([*ranks, ""], stream)
            files = others_counted(files_since(begun.folder, begun.began_ns))
            folder, width = begun.shown_folder, width_of(stream)
            lines = last_lines(folder, files, folder, width, ranks=identity.world_size > 1)
            if time.thread_time() > latest and written:
                _put([*wrapped(_TOO_LONG, width), *lines, *late], stream)
                return
            if not begun.options.full:
                _put([*closed_lines(report, width, lines), *late], stream)
                return
            report.show(stream, full=True)
            stream.write("\n")
            if has_functions:
                corrected = report.overhead.corrected
                print_summary(stats_dict(report.snapshot, correct_times=corrected), stream)
            closing = closing_lines(report, width)
            _put([*lines, *(["", *closing] if closing else []), *late], stream)
    except BrokenPipeError:
        sys.stdout = None  # see profile_command
    except OSError as error:
        names = ", ".join(map(repr, written)) or "nothing"
        complain(f"{names} written, but not shown: {error}")


def _put(lines: Iterable[str], stream: TextIO) -> None:
    stream.writelines(f"{line}\n" for line in lines)


def _ranks(
    begun: _Begun,
    identity: Identity,
    job: Callable[[], JobNow | None],
    may_wait: Callable[[], bool],
    width: int,
) -> tuple[list[str], list[str]]:
    size = identity.world_size
    here = size if begun.options.output is not None else ranks_here(os.environ, size)
    try:
        return job_lines(begun.folder, RUN, size, begun.began_ns, job, width, may_wait, here)
    except KeyboardInterrupt:  # the program is over: this ends the wait alone
        return wrapped(LATER, width), []
    except Exception as error:  # this rank's report must still appear
        return wrapped(f"Ranks could not be compared: {error}", width), []


def _save_data(data: bytes, path: str) -> None:
    with atomic_write(resolve_output(path)) as stream:
        stream.write(data)
