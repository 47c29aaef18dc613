"""Subtract the hook's own cost from a snapshot's times.

A hooked call costs time in two places: inside the callee's interval and outside it, in the
caller's.  Counts alone therefore give the hook's cost of a node::

    corrected = raw - own entries x inside cost - children's entries x outside cost

with the costs per event kind from the calibration.  The first and the last call that a function
makes each time it runs are nested: they cost more (``Calibration.nested``).  No node took less than
no time, so a negative result becomes 0, and the report states the amount that this hides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress, islice

from fastprof.report.in_run import HookFactors, hook_factors, scaled
from fastprof.report.threads import training_thread
from fastprof.snapshot import Calibration, EventCost, Key, Snapshot, ThreadTree
from fastprof.snapshot.run_phases import STEPS

#: Cache key of a snapshot's hook factors.  A part of a run has the factors of the run.
HOOK = "hook factors"

#: Cache key of a snapshot's correction.
CORRECTED = "correction"

#: This many of the calls that a function makes each time it runs are next to its own begin and end:
#: one event follows the other, and nothing overlaps with them.
_ENDS = 2

#: Types whose methods wait for a lock.
_LOCKS = ("'_thread.lock'", "'_thread.RLock'")

#: A function called at least this often counts as often called.
_OFTEN = 100


@dataclass(frozen=True, slots=True)
class Correction:
    """Corrected exclusive times in ns, one column per thread, and the subtracted amount.

    ``overhead_ns`` is the estimated cost of the hook over all threads, subtracted or not; None: it
    was never calibrated.  ``clamped_ns`` is the part that was not subtracted because a time would
    have become negative.  ``reason`` says why nothing was corrected; empty otherwise.
    ``bytecode_ns`` is the time that the hook's slower bytecode added.  If the run itself measured
    the hook's cost, ``factors`` is set; without it bytecode is not subtracted.  ``waits_ns`` was
    subtracted from the training thread's waits for locks, because it cost others as much.
    """

    self_ns: tuple[tuple[int, ...], ...]
    applied: bool
    overhead_ns: int | None
    clamped_ns: int
    reason: str
    bytecode_ns: int = 0
    factors: HookFactors | None = None
    waits_ns: int = 0


def correct(snapshot: Snapshot, *, enabled: bool = True) -> Correction:
    """Return the corrected exclusive time of every node, computed once per snapshot.

    With ``enabled=False``, without calibration, or with an external timer (whose unit
    and cost are not the clock's) the times are returned as recorded.
    """
    # Tables, rules and files of one report need the same.
    found: Correction | None = snapshot.known.get(CORRECTED)
    if found is None:
        found = snapshot.known[CORRECTED] = _correct(snapshot)
    if enabled or not found.applied:
        return found
    # The hook cost the same.
    raw = tuple(t.nodes.self_ns for t in snapshot.threads)
    reason = "correction was switched off"
    return replace(found, self_ns=raw, applied=False, clamped_ns=0, reason=reason)


def _correct(snapshot: Snapshot) -> Correction:
    raw = tuple(t.nodes.self_ns for t in snapshot.threads)
    if snapshot.meta.get("timer") == "external":
        return Correction(raw, False, None, 0, "an external timer was used")
    calibration = snapshot.calibration
    if calibration is None:
        return Correction(raw, False, None, 0, "the hook's cost was not calibrated")
    costs = _key_costs(calibration, snapshot.keys)
    columns: list[tuple[int, ...]] = []
    overhead = 0.0
    clamped = 0.0
    kinds = [key.kind for key in snapshot.keys]
    needs = [_hook_ns(tree, snapshot.keys, kinds, costs, calibration) for tree in snapshot.threads]
    often = _called_often(snapshot)
    # The hook's cost in this program, if the run measured it.
    factors: HookFactors | None = (
        snapshot.known[HOOK] if HOOK in snapshot.known else hook_factors(snapshot, needs, often)
    )
    snapshot.known[HOOK] = factors
    if factors is not None:
        calibration = scaled(calibration, factors)
        needs = [[factors.calls * cost for cost in need] for need in needs]
    for tree, need in zip(snapshot.threads, needs, strict=True):
        overhead += sum(need)
        own = tree.nodes.self_ns
        clamped += sum([cost - ns for ns, cost in zip(own, need, strict=True) if cost > ns])
        columns.append(
            tuple(
                [
                    (round(ns - cost) if cost else ns) if ns >= cost else 0
                    for ns, cost in zip(own, need, strict=True)
                ]
            )
        )
    slower = 1.0 - 1.0 / calibration.slowdown
    if factors is not None and slower:
        often = _in_steps(snapshot, often)
    bytecode = _bytecode_ns(columns, often, slower)
    if factors is not None and slower:
        columns = [
            tuple(
                [round(ns * (1.0 - slower)) if slow else ns for ns, slow in zip(c, o, strict=True)]
            )
            for c, o in zip(columns, often, strict=True)
        ]
    waits = 0
    if factors is not None:
        waits = _shorten_waits(snapshot, columns, factors.others)
    return Correction(
        tuple(columns), True, round(overhead), round(clamped), "", bytecode, factors, waits
    )


def _shorten_waits(snapshot: Snapshot, columns: list[tuple[int, ...]], part: float) -> int:
    """Subtract ``part`` of the hook's cost in other threads from the training thread's waits.

    Where it waits for a lock, another thread works, and the hook makes that work longer.

    Args:
        columns: per thread the times of its nodes in ns; that of the training thread is replaced.

    Returns:
        what was subtracted, in ns.
    """
    thread = training_thread(snapshot)
    if len(columns) < 2 or thread < 0 or snapshot.threads is snapshot.worker_threads:
        return 0
    locks = [key.kind == "c" and any(lock in key.name for lock in _LOCKS) for key in snapshot.keys]
    nodes, column = snapshot.threads[thread].nodes, columns[thread]
    waits = [i for i, key in enumerate(nodes.key) if locks[key] and column[i]]
    if not waits:
        return 0
    cost: dict[int, float] = {}
    for number, (tree, times) in enumerate(zip(snapshot.threads, columns, strict=True)):
        phase = tree.nodes.phase or (STEPS,) * len(tree.nodes)
        rows = zip(phase, tree.nodes.self_ns, times, strict=True) if number != thread else ()
        for of, raw, left in rows:
            cost[of] = cost.get(of, 0.0) + part * (raw - left)
    phase = nodes.phase or (STEPS,) * len(nodes)
    waited: dict[int, int] = {}
    for i in waits:
        waited[phase[i]] = waited.get(phase[i], 0) + column[i]
    new = list(column)
    for i in waits:
        longer = min(1.0, cost.get(phase[i], 0.0) / waited[phase[i]])
        new[i] = round(column[i] * (1.0 - longer))
    columns[thread] = tuple(new)
    return sum(column) - sum(new)


def without_hook(snapshot: Snapshot) -> tuple[Sequence[float], ...]:
    """Return an estimate in ns of each node's time without the hook.

    Unlike :func:`correct` it also subtracts slower bytecode and longer waits if only the
    calibration says how much they are, and from Python functions that are seldom called: a finding
    must not promise more of their time than there is.
    """
    found, slowdown = correct(snapshot), _unmeasured_slowdown(snapshot)
    if not found.applied or found.factors is not None:
        return found.self_ns
    python = [key.kind == "python" for key in snapshot.keys]
    columns = [
        tuple(
            [
                round(ns / slowdown) if python[key] else ns
                for ns, key in zip(column, tree.nodes.key, strict=True)
            ]
        )
        for column, tree in zip(found.self_ns, snapshot.threads, strict=True)
    ]
    _shorten_waits(snapshot, columns, 1.0)
    return tuple(columns)


def may_be_more(snapshot: Snapshot) -> bool:
    """Return whether :func:`without_hook` gives the least that a time may be.

    It counts all time of Python functions as bytecode, although operators on arrays are C code.
    """
    return _unmeasured_slowdown(snapshot) != 1.0


def _unmeasured_slowdown(snapshot: Snapshot) -> float:
    """Return the slowdown of bytecode that only the calibration knows; 1.0: there is none."""
    found, calibration = correct(snapshot), snapshot.calibration
    if not found.applied or found.factors is not None or calibration is None:
        return 1.0
    return calibration.slowdown


def _called_often(snapshot: Snapshot) -> list[list[bool]]:
    """Return per thread and node whether it is a Python function that was called often.

    Only their bytecode is slower: code that runs once waits for memory and for files.
    """
    python = [key.kind == "python" for key in snapshot.keys]
    return [
        [
            calls + resumes >= _OFTEN and python[key]
            for key, calls, resumes in zip(
                tree.nodes.key, tree.nodes.calls, tree.nodes.resumes, strict=True
            )
        ]
        for tree in snapshot.threads
    ]


def _in_steps(snapshot: Snapshot, often: list[list[bool]]) -> list[list[bool]]:
    """Return the same without functions that no step calls.

    The run measured how much slower the bytecode of its steps is; that of other functions may be as
    fast as without the hook.
    """
    keys: set[int] = set()
    for tree in snapshot.threads:
        nodes = tree.nodes
        phases = nodes.phase or (STEPS,) * len(nodes)
        keys |= {key for key, phase in zip(nodes.key, phases, strict=True) if phase == STEPS}
    return [
        [slow and key in keys for slow, key in zip(column, tree.nodes.key, strict=True)]
        for column, tree in zip(often, snapshot.threads, strict=True)
    ]


def _bytecode_ns(columns: list[tuple[int, ...]], often: list[list[bool]], slower: float) -> int:
    """Return the time that slower bytecode under the hook added to Python functions."""
    if not slower:
        return 0
    chosen = [compress(c, o) for c, o in zip(columns, often, strict=True)]
    return round(slower * sum([sum(ns) for ns in chosen]))


def _key_costs(calibration: Calibration, keys: Sequence[Key]) -> list[EventCost | None]:
    """Return the cost of one call per key, or None for keys that the hook does not see."""
    by_form = {
        "short": calibration.python,
        "implicit": calibration.implicit,
        "general": calibration.general,
        "unpacked": calibration.unpacked,
    }

    def cost(key: Key) -> EventCost | None:
        if key.kind == "python":
            return by_form[key.form]
        if key.kind == "type":
            return calibration.text if key.name == "<class 'str'>" else calibration.constructor
        if key.kind != "c":
            return None
        if key.form == "general":
            return calibration.c_general
        return calibration.method if key.name.startswith("<method ") else calibration.c

    return [cost(key) for key in keys]


def _hook_ns(
    tree: ThreadTree,
    keys: Sequence[Key],
    kinds: Sequence[str],
    costs: list[EventCost | None],
    calibration: Calibration,
) -> list[float]:
    """Return the part of each node's exclusive time that is the hook's.

    Args:
        kinds, costs: per key.
    """
    nodes = tree.nodes
    implicit, init = calibration.implicit, calibration.init
    need = [0.0] * len(nodes)
    events = [0] * len(nodes)  # the number of calls from a Python function
    columns = zip(nodes.parent, nodes.key, nodes.calls, nodes.resumes, strict=True)
    for i, (parent, key, calls, resumes) in islice(enumerate(columns), 1, None):
        cost = costs[key]
        if cost is None:
            continue
        above = nodes.key[parent]
        caller = kinds[above]
        from_c = caller in ("c", "type")
        if from_c and kinds[key] == "python":
            enters_init = caller == "type" and keys[above].form != "implicit"
            cost = init if enters_init and keys[key].name == "__init__" else implicit
        # Below a truncated node the real caller is unknown, and most often it is one of
        # the node's own siblings: the truncated node itself has no time to take it from.
        payer = i if caller == "truncated" else parent
        if resumes:
            goes_on = calibration.fed if from_c else calibration.resume
            # A library's calls during its import are counted together: most are not to generators.
            if kinds[key] == "python" and not keys[key].line:
                need[i] += goes_on.inside_ns * resumes
                need[payer] += goes_on.outside_ns * resumes
            else:
                # The generator's first entry is a resume; C code was called with it where it was
                # made.
                cost = goes_on
                maker = nodes.parent[parent] if from_c else payer
                need[maker] += calibration.made.outside_ns * calls
                calls += resumes
        need[i] += cost.inside_ns * calls
        need[payer] += cost.outside_ns * calls
        if caller == "python":
            events[parent] += calls
    nested = calibration.nested.outside_ns
    for i, made in enumerate(events):
        if made:
            need[i] += nested * min(made, _ENDS * (nodes.calls[i] + nodes.resumes[i]))
    return need
