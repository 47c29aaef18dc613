"""The program's own functions as lines: a tree with times, and the time of libraries for each."""

from dataclasses import replace

from fastprof.names import elided, file_name, readable, text_width
from fastprof.report.figures import plural
from fastprof.report.model import Report
from fastprof.report.run_phases import ALL, IMPORTS
from fastprof.report.user_tree import UserRow, UserTree, user_tree
from fastprof.report.waits import leading_threads
from fastprof.tables.cells import Table, duration, number, percent
from fastprof.tables.layout import table_lines, wrapped
from fastprof.tables.report import other_threads_text, thread_name
from fastprof.tables.run_phases import PHASE_NAMES

#: Number of a function's library parts to name with the functions under it.
_PARTS = 2
#: A part with a smaller share of the function's time is left out.
_LEAST = 0.1
#: Characters of such a part's name; ``torch.scaled_dot_product_attention`` has 34.
_PART = 36
#: Columns of the times and shares.
_FIGURES = 15
#: Fewest characters of a function's name, and of a file's.
_LEAST_NAME, _FILE = 16, 9
_PACKAGES = 3
#: Another thread with a smaller share of the time is left out; so many have a tree.
_THREAD, _THREADS = 0.05, 3


def per_steps(report: Report) -> int:
    """Return the steps that a report's functions cover; 0: they cover another phase."""
    return report.steps.measured if report.phase == "steps" else 0


def phase_of(report: Report) -> str:
    """Return the phase in the title of a report's functions.

    A run without steps has no set-up before a loop.
    """
    return ALL if report.phase == "setup" and not report.steps.count else report.phase


def functions_lines(report: Report, width: int, most: int) -> list[str]:
    """Return the functions of the threads that matter most, and a sentence about the others."""
    lines: list[str] = []
    leading = leading_threads(report, _THREAD)
    shown = leading[:_THREADS]
    for i in shown:
        tree = user_tree(report, max(1, most // len(shown)), i)
        thread = thread_name(report.threads[i].name).strip("()") if len(leading) > 1 else ""
        thread = "a thread that ended" if thread == "unnamed" else thread
        tree = replace(tree, hidden=()) if lines else tree
        lines += user_lines(tree, width, per_steps(report), phase_of(report), thread, report.mark)
    others = other_threads_text(report, shown, _THREAD) if lines else ""
    return [*lines, *(wrapped(others, width, rest="  ") if others else [])]


def user_lines(
    tree: UserTree, width: int, per: int = 0, phase: str = ALL, thread: str = "", mark: str = ""
) -> list[str]:
    """Return the tree as lines of at most ``width`` columns; none for one without rows.

    Args:
        per: steps to divide times by; 0: show totals, as for a tree with time outside of steps.
        thread: its name, if there are several trees.
        mark: before the name of a column that is estimated.
    """
    if not tree.rows:
        return []
    per = 0 if tree.beyond_ms else per
    steps = per or 1
    title = "your functions"
    if per:
        title += " in a step"
    elif phase in PHASE_NAMES and phase != "steps":
        imported = any(name == IMPORTS for row in tree.rows for name, _ in row.below)
        before = f"{IMPORTS} and " if phase == "setup" and imported else ""
        title += f" in {before}{PHASE_NAMES[phase][0]}"
    title += f" ({thread})" if thread else ""
    parts = [_parts(row, steps, _PART) for row in tree.rows]
    # The parts wrap between words, and the functions do not.
    room = max(24, width // 2 - 4, width - _FIGURES - max(map(text_width, parts)))
    names = _names(tree, room)
    rest = width - _FIGURES - max(map(text_width, names))
    parts = [_parts(row, steps, min(_PART, max(_LEAST_NAME, rest - 6))) for row in tree.rows]
    table = Table(
        "",
        (title, f"{mark}ms", "%", "most of it"),
        tuple(
            (name, number(row.total_ms / steps), percent(row.share), most)
            for name, row, most in zip(names, tree.rows, parts, strict=True)
        ),
        left=frozenset({0, 3}),
        whole=frozenset({0}),
    )
    drawn = table_lines(table, width)
    return [drawn[0], *drawn[2:], *_beyond(tree, width), *_hidden(tree, width)]


def _beyond(tree: UserTree, width: int) -> list[str]:
    if not tree.beyond_ms:
        return []
    text = f"These are totals; {duration(tree.beyond_ms)} of them belong to no completed step."
    return wrapped(text, width)


def _name(row: UserRow, above: str, room: int) -> str:
    """Return the function, file and line; ``above`` is the file of the row above."""
    indent = "  " * min(row.depth, 6)
    room = max(_LEAST_NAME, room - len(indent))
    name, line = readable(row.name, 200), f":{row.line}"
    if row.name == file_name(row.file):
        return f"{indent}{elided(name, room)}"
    room -= 2
    file = readable(file_name(row.file), 200)
    if text_width(name) + text_width(file) + len(line) > room:
        # A reader sees the file in the row above.  Without that, shorten the file before the name.
        most = room - min(text_width(name), room * 3 // 5) - len(line)
        file = "" if row.file == above else elided(file, max(_FILE, most))
    where = f"{file}{line}"
    return f"{indent}{elided(name, max(_LEAST_NAME, room - text_width(where)))}  {where}"


def _names(tree: UserTree, room: int) -> list[str]:
    """Return the first column, of about ``room`` columns."""
    above = ["", *(row.file for row in tree.rows)]
    for _ in range(2):  # the second time with the columns that the longest one needs anyway
        names = [_name(row, file, room) for row, file in zip(tree.rows, above, strict=False)]
        room = max(map(text_width, names))
    return names


def _parts(row: UserRow, steps: int, longest: int) -> str:
    parts = [*row.below, ("own code", row.own_ms)]
    large = sorted((p for p in parts if p[1] >= _LEAST * row.total_ms), key=lambda p: -p[1])
    return ", ".join(
        f"{elided(readable(name, 200), longest)} {number(ms / steps)}"
        for name, ms in large[:_PARTS]
    )


def _hidden(tree: UserTree, width: int) -> list[str]:
    named = [(package, n) for package, n in tree.hidden if package][:_PACKAGES]
    others = sum(n for _, n in tree.hidden) - sum(n for _, n in named)
    parts = [
        f"{plural(n, 'function')} of {elided(readable(package, 200), 40)}" for package, n in named
    ]
    parts += [plural(others, "other" if parts else "library function")] if others else []
    if not parts:
        return []
    text = f"Hidden: {', '.join(parts)}; their time is part of the function that led to them."
    return wrapped(text, width)
