"""Measures what fastprof's own work costs, before a run, and adds it up."""

from dataclasses import replace

from fastprof.capture.options import Recorder
from fastprof.guards import dropped, own_errors
from fastprof.session.faults import Faults
from fastprof.session.loaders.timing import LoaderRegistry
from fastprof.session.own_time import OwnTime
from fastprof.session.part import Part
from fastprof.snapshot import Snapshot
from fastprof.snapshot.run_phases import OWN_OF, RUN_PHASES


class OwnCosts(Part):
    """The cost of one run's sections, steps and loaders to the program.

    Args:
        backend: whose function events to measure; None: functions are not recorded.
    """

    kind = "cost"

    def __init__(
        self,
        recorder: Recorder,
        backend: str | None,
        registry: LoaderRegistry,
        own_time: OwnTime,
        faults: Faults,
    ) -> None:
        self._recorder = recorder
        self._backend = backend
        self._registry = registry
        self._own_time = own_time
        self._faults = faults
        self._section_costs = (0.0, 0.0, 0.0)

    def begin(self) -> None:
        from fastprof.capture.calibrate import calibration, section_costs

        try:
            if self._backend is not None:
                calibration(self._backend, at_start=True)
        except own_errors() as error:  # the run continues, uncorrected
            self._faults.notes.append(f"The hook's cost could not be measured: {error}")
        # Fails while another recorder is active; the report then states less.
        with dropped():
            self._section_costs = section_costs()

    def add_to(self, snapshot: Snapshot) -> Snapshot:
        section_ns, batch_ns, step_ns = self._section_costs
        own = self._own_time
        entries = [0] * len(RUN_PHASES)
        for section in snapshot.sections:
            entries[section.phase] += section.count
        batches = sum(entry.batches for entry in self._registry.entries)
        steps = snapshot.steps.count - own.steps
        counted = round(sum(entries) * section_ns + batches * batch_ns + steps * step_ns)
        meta = {**snapshot.meta, "own_ns": own.ns + counted, "untimed_ns": own.untimed_ns}
        # The phase of the run adds what was timed.
        for key, phases in OWN_OF.items():
            meta[key] = round(sum(entries[phase] for phase in phases) * section_ns)
        return replace(snapshot, meta=meta)
