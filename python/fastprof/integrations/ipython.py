"""IPython and Jupyter: ``%load_ext fastprof``, then ``%%fastprof`` as the first line of a cell.

IPython calls :func:`load_ipython_extension`, which ``fastprof`` exports for it.
"""

import ast
import sys
from functools import partial
from typing import Any

from fastprof.integrations import torch_loop
from fastprof.results.report import Report
from fastprof.session.profiler import Profiler, run_of

__all__ = ["load_ipython_extension"]


def load_ipython_extension(shell: Any) -> None:
    """Register ``%%fastprof`` in ``shell`` (called by ``%load_ext fastprof``)."""
    shell.register_magic_function(partial(_run, shell), "cell", "fastprof")


def _run(shell: Any, line: str, cell: str) -> Any:
    """Run a cell under a profiler, display the report, and return the cell's last value.

    Args:
        shell: IPython's shell.
        line: the name of a variable that gets the report, or nothing.
        cell: the source.

    Raises:
        ValueError: ``line`` is no name.
        BaseException: the cell's own error, after the report of what was recorded until then.
    """
    name = line.strip()
    if name and not name.isidentifier():
        raise ValueError(
            f"%%fastprof is followed by {name!r:.80}, expected nothing or the name of a variable "
            "for the report; use fastprof.Profiler(...) for options"
        )
    body, last = _compiled(shell, cell)
    names = shell.user_ns
    profiler = Profiler()
    run = run_of(profiler)
    run.functions.is_called = False  # by IPython
    # Before the cell's end, some versions' execution_count is that of the next cell.
    run.facts["command"] = f"In [{len(shell.history_manager.input_hist_parsed) - 1}]"
    try:
        # The recording has the cell's code only, not what the shell does before and after it.
        with profiler:
            if profiler.running:  # not with FASTPROF=0
                profiler.enter_phase("setup")
                torch_loop.attach(profiler)
            exec(body, names)
            value = None if last is None else eval(last, names)
    finally:
        _show(shell, name, profiler.report())
    return value


def _compiled(shell: Any, cell: str) -> tuple[Any, Any]:
    """Return the code of a cell, and that of its last expression, if its value is displayed."""
    from IPython.core.displayhook import DisplayHook

    # The line of the magic counts in the line numbers that the user sees.
    source = "\n" + shell.transform_cell(cell)
    file = shell.compile.cache(source, shell.execution_count, raw_code=cell)
    tree = shell.transform_ast(shell.compile.ast_parse(source, filename=file))
    last = None
    hook: Any = DisplayHook  # without annotations
    shown = not hook.semicolon_at_end_of_expression(cell)
    if shown and tree.body and isinstance(tree.body[-1], ast.Expr):
        last = shell.compile(ast.Expression(tree.body.pop().value), file, "eval")
    return shell.compile(tree, file, "exec"), last


def _show(shell: Any, name: str, report: Report) -> None:
    from IPython import display

    if name:
        shell.user_ns[name] = report
    if "text/html" in shell.display_formatter.active_types:
        show: Any = display.display  # without annotations
        show(report)
    else:  # IPython in a terminal shows of an object no more than its repr
        sys.stdout.write(f"{report}\n")
