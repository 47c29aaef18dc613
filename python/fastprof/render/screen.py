"""The report on one screen: the run, the changes to make, the parts of a step.

At most :data:`LINES` lines of the given width, down to 80 columns. The full text has the rest.
"""

from collections.abc import Sequence
from typing import TextIO

from fastprof.names import elided, readable
from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.report.notes import changes_of, has_functions
from fastprof.report.rows import OWN_COST, UNACCOUNTED
from fastprof.report.threads import training_thread
from fastprof.report.waits import wait_for_children, without_waits
from fastprof.tables.cells import duration, percent, percent_at_most, shortened
from fastprof.tables.compilations import compile_lines, has_compiled_optimizer
from fastprof.tables.findings import closing_lines, verdict_lines
from fastprof.tables.gpu import gpu_lines
from fastprof.tables.layout import PIPED, table_lines, whole_sentences, wrapped
from fastprof.tables.report import functions_brief, steps_brief
from fastprof.tables.run_phases import phases_text
from fastprof.tables.stages import stages_brief, stages_text
from fastprof.tables.steps import row_name
from fastprof.tables.user_tree import functions_lines

#: Lines of the screen, with those that a command adds.
LINES = 40
#: Rows of sections and functions, findings, lines of the first one's reasons, and notes (None: not
#: even their number): as many as fit.
_SIZES = (
    (6, 7, 3, 4, 2), (5, 6, 3, 4, 1), (5, 5, 2, 4, 1), (4, 4, 2, 4, 1), (4, 3, 2, 3, 0),
    (3, 3, 2, 2, 0), (3, 2, 2, 1, 0), (3, 2, 2, 1, None), (3, 2, 1, 3, None), (3, 2, 1, 1, None),
)  # fmt: skip
_NO_TREE = "None of your functions took 1 % of the time. Library functions with the most time:"
#: A kind of time with a smaller share of the steps is left out.
_KIND = 0.01
#: A process that waits for a larger share of the run for child processes leaves them the training.
_IN_CHILDREN = 0.25
#: Changes of the step time.
_MOST_CHANGES = 2
#: A phase with a smaller share of the run is left out.
_PHASE = 0.005


def write(report: Report, stream: TextIO) -> None:
    """Write the screen at the width of a file or pipe."""
    stream.writelines(f"{line}\n" for line in closed_lines(report, PIPED))


def screen_lines(report: Report, width: int, most: int = LINES) -> list[str]:
    """Return the screen as at most ``most`` lines of at most ``width`` columns.

    A narrow screen has fewer rows; what no table can do without is shown in any case.
    """
    lines: list[str] = []
    for sections, functions, findings, why, notes in _SIZES:
        blocks = (
            [*headline(report, width), *_changes(report, width)],
            verdict_lines(report, width, findings, why),
            _steps(report, width, sections),
            _functions(report, width, functions),
            [] if notes is None else _remarks(report, width, notes),
        )
        lines = []
        for block in blocks:
            lines += [*([""] if lines and block else []), *block]
        if len(lines) <= most:
            break
    return lines


def closed_lines(report: Report, width: int, last: Sequence[str] = ()) -> list[str]:
    """Return the screen and, below lines ``last``, the verdict once more: above the prompt."""
    closing = closing_lines(report, width)
    below = [*([""] if last else []), *last, *([""] if closing else []), *closing]
    return [*screen_lines(report, width, LINES - len(below)), *below]


def headline(report: Report, width: int) -> list[str]:
    """Return the program, the length of its steps and the cost of recording them."""
    meta, steps = report.meta, report.shown_steps
    parts = []
    if report.stages:  # a mean over steps of different kinds is the length of none
        stages = plural(len(report.stages), "stage")
        parts.append(f"{plural(report.measured_steps, 'step')} in {stages}")
    elif steps.mean_ms is not None:
        parts.append(
            f"{plural(report.measured_steps, 'step')} of {duration(steps.mean_ms)} "
            f"({_percentiles(steps.mean_ms, (('p50', steps.p50_ms), ('p95', steps.p95_ms)))})"
        )
    elif steps.count:
        parts.append(f"{plural(steps.count, 'step')}, all warm-up")
    until = meta.get("recorded_until")
    ended = f" until {readable(str(until), 60)}" if until else ""
    parts.append(f"{duration(report.wall_ms)} recorded{ended}")
    cost = report.overhead
    if cost.functions_ms is None and has_functions(report.snapshot):
        parts.append("cost unknown")
    elif cost.share is not None:
        of_what = " of the loop" if cost.of_steps else ""
        parts.append(f"cost {percent_at_most(cost.share, cost.most_share)}{of_what}")
        parts[-1] += _of_look(report)
    if report.plain is not None:
        parts[-1] += f"; functions from {plural(report.steps.measured, 'step')}"
    if ended_by := meta.get("ended_by"):
        parts.append(f"ended by {readable(str(ended_by), 60)}")
    ranks = meta.get("world_size")
    if isinstance(ranks, int) and ranks > 1:
        parts.append(f"rank {meta.get('rank')} of {ranks}")
    program = elided(readable(str(meta.get("command") or "fastprof"), 1000), 60)
    return wrapped(f"{program}: {', '.join(parts)}", width, rest="  ")


def _of_look(report: Report) -> str:
    """Return how much of a cost above the budget the full look is, which no budget bounds."""
    cost, budget = report.overhead, report.meta.get("overhead_budget")
    looks = report.meta.get("full_look")
    if not cost.of_steps or cost.share is None:
        return ""
    if isinstance(looks, float) and cost.share > looks:
        return ", all of it in the full look that a run begins with"
    if cost.after_look is None or not isinstance(budget, float) or cost.share <= budget:
        return ""
    looked = plural(cost.look_steps, "step")
    return f" and {percent(cost.after_look)} % after the full look at {looked}"


def _percentiles(mean_ms: float, figures: Sequence[tuple[str, float | None]]) -> str:
    """Return named times, with units unless all of them have the mean's: ``p50 19.4 ms``."""
    texts = [duration(ms) for _, ms in figures]
    unit = duration(mean_ms).rpartition(" ")[2]
    if all(text.endswith(f" {unit}") for text in texts):
        texts = [text.removesuffix(f" {unit}") for text in texts]
    return ", ".join(f"{name} {text}" for (name, _), text in zip(figures, texts, strict=True))


def _steps(report: Report, width: int, most: int) -> list[str]:
    """Return the parts of a step, by section and by kind of time; then the rest of the run."""
    lines = []
    stages = stages_text(report)
    lines += wrapped(stages, width, rest="  ") if stages else []
    tables = stages_brief(report) if stages else steps_brief(report, most)
    if tables.rows:
        drawn = table_lines(tables, width)
        lines += [drawn[0], *drawn[2:]]
    unmarked = _unmarked(report)
    lines += wrapped(unmarked, width, rest="  ") if unmarked else []
    lines += _split(report, width)
    beside = phases_text(report, _PHASE)
    lines += wrapped(beside, width, rest="  ") if beside else []
    for line in (*gpu_lines(report), *compile_lines(report)):
        lines += wrapped(line, width, rest="  ")
    lines += _unprofiled(report, width)
    return lines


def _unmarked(report: Report) -> str:
    """Return what to add to a program without recognized steps, or without sections in them."""
    steps = report.steps
    if not report.has_tree or (not steps.count and report.meta.get("recorded_until")):
        return ""
    elsewhere = report.meta.get("torch_stepped_elsewhere")
    if not steps.count:
        if elsewhere:
            return (
                "fastprof saw no step, so no figure is per step: it watches the first thread that "
                "calls backward, and the optimizers stepped in another one. Call "
                "torch_loop.attach() in that thread, and start the program without `fastprof run`."
            )
        ended_by = report.meta.get("ended_by")
        if ended_by:
            return (
                f"The program ended with {readable(str(ended_by), 60)} before the end of its "
                "first step, so no figure is per step."
            )
        children = wait_for_children(report)
        if children is not None and children.cum_ms > _IN_CHILDREN * report.wall_ms:
            record = "torch_loop.attach" if report.meta.get("torch") else "Profiler"
            return (
                f"fastprof saw no step: this process waited {duration(children.cum_ms)} for child "
                f"processes ({children.qualname}), which are not in this report. To record them, "
                f"use fastprof's {record}(output=...) in the function that they run, and give each "
                "process its own output file."
            )
        if has_compiled_optimizer(report):
            return (
                "fastprof saw no step, so no figure is per step: the optimizer is compiled, and "
                "its end cannot be seen. Call fastprof.step() at the end of each step."
            )
        if report.meta.get("steps_ended_by") == "optimizers":
            return (
                "fastprof saw no step, so no figure is per step. It sees the steps of torch's and "
                "keras' optimizers; in another loop call fastprof.step() at the end of each step."
            )
        return (
            "fastprof saw no step, so no figure is per step. Call fastprof.step() at the end of "
            "each step; `fastprof run` and torch_loop.attach() see those of torch's and keras' "
            "optimizers by themselves."
        )
    if elsewhere:
        own = readable(report.view.threads[training_thread(report.view)].name, 40)
        return f"Optimizers also stepped in other threads; the steps are those of {own}."
    ended_by = str(report.meta.get("steps_ended_by"))
    if ended_by == "batches":
        return "No optimizer stepped: a step is a batch of the loader, and the work on it."
    if ended_by.startswith("batches"):
        return (
            "A step is a batch of the loader, and the work on it: torch.compile hides forward, "
            "backward and the optimizer from fastprof."
        )
    if steps.measured and {row.name for row in steps.rows} <= {UNACCOUNTED, OWN_COST}:
        return (
            "No section ran in these steps. To give a part of the step a row here, run it in `with "
            'fastprof.profile_section("forward"):`.'
        )
    return ""


def _unprofiled(report: Report, width: int) -> list[str]:
    step = report.steps.unprofiled
    if step is None or report.plain is not None:  # the headline has it
        return []
    # Not what recording adds to it: the headline has that, as a part of the step as recorded.
    said = (
        f"Without fastprof the median step takes {duration(step.ms)} "
        f"(+- {duration(step.error_ms)})."
    )
    return wrapped(said, width, rest="  ")


def _split(report: Report, width: int) -> list[str]:
    kinds = [row for row in report.shown_steps.split if (row.share or 0.0) >= _KIND]
    if not kinds:
        return []
    said = ", ".join(f"{row_name(row)} {percent(row.share)} %" for row in kinds)
    return wrapped(f"Of a step's time: {said}.", width, rest="  ")


def _functions(report: Report, width: int, most: int) -> list[str]:
    if not has_functions(report.snapshot) and report.has_tree:
        return []
    if lines := functions_lines(report, width, most):
        return lines
    table = functions_brief(without_waits(report).rows, most, report.mark)
    if not table.rows:
        return []
    drawn = table_lines(table, width)
    head = wrapped(_NO_TREE, width) if report.has_tree else []
    return [*head, drawn[0], *drawn[2:]]


def _changes(report: Report, width: int) -> list[str]:
    """Return the latest of what changed during the run: step times, long steps, passes."""
    lines: list[str] = []
    for text in changes_of(report.snapshot)[-_MOST_CHANGES:]:
        lines += wrapped(f"{text[:1].upper()}{shortened(text[1:], 1000)}.", width, rest="  ")
    return lines


def _remarks(report: Report, width: int, most: int) -> list[str]:
    """Return faults of the recording; notes about choices are in the full text."""
    lines: list[str] = []
    for note in report.snapshot.notes[:most]:
        lines += whole_sentences(f"Note: {shortened(note, 1000)}", width, 2, rest="  ")
    more = len(report.notes) - len(report.snapshot.notes[:most])
    if more > 0:
        lines.append(f"{more} {'more ' if lines else ''}note{'s' * (more > 1)} in the full report.")
    return lines
