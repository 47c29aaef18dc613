"""Measurements of functions and of groups of them in the training thread."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fastprof.findings.function_groups import GROUPS, NEVER_IN, OPENED, sought
from fastprof.findings.group_times import GroupTime, marks, walk
from fastprof.findings.hot_functions import Hot, hottest
from fastprof.findings.measured_machine import MachineFacts
from fastprof.findings.measured_steps import MS
from fastprof.findings.uses import NOTHING, Caller, Use, located, where
from fastprof.lazy import Lazy
from fastprof.names import readable
from fastprof.report.correct import correct
from fastprof.report.plain_steps import function_scale
from fastprof.report.rows import UNACCOUNTED, FunctionRow, key_of
from fastprof.report.run_phases import between_steps_ns, beyond_steps_ns
from fastprof.report.threads import training_thread
from fastprof.report.tree import at_or_below
from fastprof.snapshot import Key, ThreadTree
from fastprof.snapshot.run_phases import RUN_PHASES, STEPS

#: Groups that rules look for in the whole recording.
_OF_THE_RUN = ("shutdown", "poll", "loader-workers", "tokens", "data", "checkpoint")


class FunctionFacts(MachineFacts):
    """The functions of a report."""

    @Lazy
    def has_functions(self) -> bool:
        """Return whether function calls were recorded."""
        if not self.report.has_tree:
            return any(row.kind in ("python", "c") for row in self.report.functions)
        view = self.report.view
        seen = [key.kind in ("python", "c") for key in view.keys]
        columns = ((t.nodes.key, t.nodes.calls, t.nodes.resumes) for t in view.threads)
        return any(
            seen[key] and (calls or resumes)
            for of_thread in columns
            for key, calls, resumes in zip(*of_thread, strict=True)
        )

    @Lazy
    def _trained(self) -> int:
        """Index of the thread that ran the sections of steps."""
        return training_thread(self.report.view)

    @property
    def thread(self) -> ThreadTree | None:
        """The training thread."""
        threads = self.report.view.threads
        return threads[self._trained] if threads else None

    @Lazy
    def _self_ns(self) -> Sequence[float]:
        """Exclusive times of the training thread's nodes, as far as steps contain them.

        Times and the step's are those of the same steps: see :func:`function_scale`.

        Between two steps fastprof may work outside of all functions: it starts and saves operator
        windows, which takes seconds on a busy machine.
        """
        view = self.report.view
        own = correct(view, enabled=self.report.overhead.corrected).self_ns[self._trained]
        if self.report.phase != RUN_PHASES[STEPS] or not view.steps.sum_ns:
            return own
        inside = (max(0, own[0] - between_steps_ns(view, self._trained)), *own[1:])
        return inside if self._to_shown == 1.0 else [ns * self._to_shown for ns in inside]

    @Lazy
    def _to_shown(self) -> float:
        """By what recorded times of functions in steps were multiplied."""
        return function_scale(self.report)

    @Lazy
    def _beyond_ms(self) -> float:
        """Time of the training thread in the view that no completed step contains."""
        return beyond_steps_ns(self.report.view, self.report.phase, self._trained) / MS

    @Lazy
    def _groups(self) -> Mapping[str, GroupTime]:
        thread = self.thread
        if thread is None:
            return {}
        keys = self.report.view.keys
        return walk(thread.nodes, self._self_ns, keys, self._marks, GROUPS, OPENED, NEVER_IN)

    @Lazy
    def _marks(self) -> Sequence[int]:
        """The groups of each key."""
        keys = self.report.view.keys
        return marks(keys, GROUPS, sought(keys))

    def hot_in(self, group: str) -> Hot | None:
        """Return the program's function with most of a group's time; None if unknown."""
        thread = self.thread
        if thread is None or not self.report.has_tree:
            return None
        keys = self.report.view.keys
        chosen = at_or_below(thread.nodes, [GROUPS[group](key) for key in keys])
        return hottest(thread.nodes, self._self_ns, keys, chosen)

    @Lazy
    def _run_groups(self) -> Mapping[str, GroupTime]:
        """The groups before, between and after the steps as well."""
        snapshot = self.report.snapshot
        if not snapshot.threads:
            return {}
        columns = correct(snapshot, enabled=self.report.overhead.corrected).self_ns
        nodes, column = snapshot.threads[self._trained].nodes, columns[self._trained]
        if snapshot is self.report.view and column is self._self_ns:
            return self._groups
        return walk(nodes, column, snapshot.keys, self._marks, GROUPS, only=_OF_THE_RUN)

    def over_run(self, group: str) -> Use:
        """Return a group's use in the whole recording, spread over its steps.

        Only for groups outside of steps, or partly outside: see ``_OF_THE_RUN``.
        """
        if not self.report.has_tree:
            return self._from_table(group)
        found = self._run_groups.get(group)
        if found is None or not found.ns:
            return NOTHING
        count = self.report.steps.count if self.steps else 1
        return self._scaled(found, found.ns / MS / count, {}, 1 / count)

    def use(self, group: str) -> Use:
        """Return the use of a group of functions inside of steps."""
        if not self.report.has_tree:
            return self._from_table(group)
        found = self._groups.get(group)
        if found is None or not found.ns:
            return NOTHING
        return replace(self._use(found), total_ms=found.ns / MS / self._to_shown)

    def _use(self, found: GroupTime) -> Use:
        keys = self.report.view.keys
        count = self.counted if self.steps else 1
        places: dict[str, float] = {}
        for key, ns in found.by_section.items():
            name = keys[key].name if key >= 0 else UNACCOUNTED
            if self.steps and key >= 0 and name not in self.rows:
                continue  # validation, for example: not in a step
            places[name] = places.get(name, 0.0) + ns / MS / count
        whole = places.get(UNACCOUNTED, 0.0)
        if self.steps:
            # Time beyond a section's time in the steps lies outside of them.
            places = {name: min(ms, self.rows.get(name, 0.0)) for name, ms in places.items()}
            # This much of the time in no section may be outside of steps.
            beyond = self._beyond_ms / count
            if UNACCOUNTED in places:
                places[UNACCOUNTED] = max(0.0, min(whole - beyond, places[UNACCOUNTED]))
        ms = sum(places.values())
        return self._scaled(found, ms, places, ms / (found.ns / MS))

    def _scaled(
        self, found: GroupTime, ms: float, places: Mapping[str, float], scale: float
    ) -> Use:
        """Return a use of ``ms`` per span; ``scale`` is from the recording to the span."""
        callers = (
            Caller(
                self._place(*place),
                site.ns / MS * scale,
                site.calls * scale,
                site.own_ns / MS * scale,
            )
            for place, site in found.sites.items()
        )
        return Use(
            ms,
            found.calls * scale,
            found.ns / MS,
            places,
            {name: ns / MS * scale for name, ns in found.shared.items()},
            {name: calls * scale for name, calls in found.calls_within.items()},
            tuple(sorted(callers, key=lambda c: -c.ms)),
        )

    def _place(self, key: int, above: int) -> str:
        keys = self.report.view.keys
        at = keys[key]
        if at.kind == "section":
            inside = f" in {where(keys[above])}" if above >= 0 else ""
            return f"section {readable(at.name, 60)}{inside}"
        return where(at) if at.kind in ("python", "c", "type") else "the top level"

    @Lazy
    def _table(self) -> Sequence[tuple[FunctionRow, Key]]:
        """The functions that may belong to a group."""
        keyed = [(row, key_of(row)) for row in self.report.functions]
        return [keyed[i] for i in sought([key for _, key in keyed])]

    def _from_table(self, group: str) -> Use:
        """Return a use without contexts: cumulative times of matches, as if none nested."""
        rows = [row for row, key in self._table if GROUPS[group](key)]
        if not rows:
            return NOTHING
        total = min(sum(row.cum_ms for row in rows), self.report.wall_ms)
        callers: dict[str, tuple[float, int]] = {}
        for row in rows:
            for edge in row.callers:
                text = located(edge.qualname, edge.file, edge.line)
                ms, calls = callers.get(text, (0.0, 0))
                callers[text] = (ms + edge.cum_ms, calls + edge.calls)
        sites = (Caller(text, ms, calls, 0.0) for text, (ms, calls) in callers.items())
        return Use(
            total, sum(r.calls for r in rows), total, {}, {}, {},
            tuple(sorted(sites, key=lambda c: -c.ms)),
        )  # fmt: skip

    def inside(self, group: str) -> Sequence[tuple[Key, float, float]]:
        """Return the contents of a group: key, own ms per span and calls, most time first.

        Only for the groups in :data:`fastprof.findings.function_groups.OPENED`.
        """
        found = self._groups.get(group) if self.report.has_tree else None
        if found is None or not found.ns:
            return ()
        keys = self.report.view.keys
        scale = self.use(group).ms / (found.ns / MS)
        rows = [
            (keys[key], ns / MS * scale, calls * scale) for key, (ns, calls) in found.inside.items()
        ]
        return sorted(rows, key=lambda row: -row[1])
