"""Real, deterministic programs for comparing profiles with cProfile's.

Most run the standard library; the rest resemble common benchmark programs.  Each is a function
without arguments that does the same work in every run.
"""

from __future__ import annotations

import _pydecimal
import argparse
import ast
import asyncio
import calendar
import configparser
import contextlib
import csv
import dataclasses
import datetime
import difflib
import email.message
import email.parser
import email.policy
import fractions
import functools
import heapq
import html.parser
import inspect
import io
import itertools
import json
import logging
import math
import pickle
import re
import shlex
import statistics
import string
import textwrap
import tokenize
import urllib.parse
from collections.abc import Callable, Iterator

PROGRAMS: dict[str, Callable[[], object]] = {}


def program(function: Callable[[], object]) -> Callable[[], object]:
    PROGRAMS[function.__name__] = function
    return function


def warm(name: str) -> Callable[[], object]:
    """Return a program with filled caches: from now on every run makes the same calls."""
    # With a cache full of earlier tests' patterns, `re` replaces some of them in some runs.
    re.purge()
    run = PROGRAMS[name]
    run()
    run()
    return run


_WORDS = "the quick brown fox jumps over the lazy dog and runs away from it".split()
_DATA = {
    "names": _WORDS,
    "nested": [{"id": i, "value": i / 7, "tags": _WORDS[: i % 5]} for i in range(12)],
    "flags": [True, False, None],
}


@program
def json_round_trip() -> object:
    # With an indent json uses its encoder in Python.
    text = json.dumps(_DATA, indent=2, sort_keys=True)
    return json.loads(text, object_pairs_hook=dict) == _DATA


@program
def pickle_in_python() -> object:
    data = {"data": _DATA, "set": {1, 2, 3}, "big": 2**200, "bytes": b"x" * 300}
    return [pickle._loads(pickle._dumps(data, protocol)) == data for protocol in range(6)]


@program
def regular_expressions() -> object:
    re.purge()
    patterns = (
        r"(?P<a>\w+)@(\w+\.)+[a-z]{2,}",
        r"^\s*(#.*)?$",
        r"(a|b)*?c{1,3}(?=d)",
        r"[^\W\d_]+",
    )
    text = "mail x@y.example.org and aabcccd\n  # note\n"
    return [[m.group() for m in re.finditer(p, text)] for p in patterns]


@program
def differences() -> object:
    old = textwrap.fill(" ".join(_WORDS * 6), 30).splitlines()
    new = [line.replace("fox", "cat") for line in old if "dog" not in line]
    ratio = difflib.SequenceMatcher(None, old, new).ratio()
    return ratio, list(difflib.unified_diff(old, new)), list(difflib.ndiff(old[:6], new[:6]))


@program
def tokenizing() -> object:
    source = inspect.getsource(heapq)[:6000]
    with contextlib.suppress(tokenize.TokenError):
        return sum(len(t.string) for t in tokenize.generate_tokens(io.StringIO(source).readline))
    return None


@program
def syntax_trees() -> object:
    tree = ast.parse(inspect.getsource(textwrap))

    class Renamer(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.copy_location(ast.Name(id=node.id.upper(), ctx=node.ctx), node)

    kinds = sorted({type(node).__name__ for node in ast.walk(tree)})
    return kinds, len(ast.unparse(ast.fix_missing_locations(Renamer().visit(tree))))


@program
def text_wrapping() -> object:
    text = " ".join(_WORDS * 8)
    return textwrap.dedent(textwrap.indent(textwrap.fill(text, 40), "    ")), textwrap.shorten(
        text, 50
    )


@program
def decimals_in_python() -> object:
    with _pydecimal.localcontext() as context:
        context.prec = 30
        two = _pydecimal.Decimal(2)
        return str(two.sqrt() + two.ln() * two.exp() / 3), f"{two**70:,.3f}"


@program
def command_line() -> object:
    parser = argparse.ArgumentParser(prog="x", description="d" * 90)
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--steps", type=int, choices=range(100))
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-v", "--verbose", action="count", default=0)
    group.add_argument("-q", action="store_true")
    sub = parser.add_subparsers(dest="command")
    train = sub.add_parser("train", help="train it")
    train.add_argument("files", nargs="*")
    parsed = parser.parse_args(["--lr", "0.5", "-vv", "train", "a", "b"])
    return parsed, parser.format_help()


@program
def mail() -> object:
    message = email.message.EmailMessage(policy=email.policy.default)
    message["Subject"] = "r\u00e9sum\u00e9 " + "x" * 80
    message["To"] = "Someone <someone@example.org>, other@example.org"
    message.set_content("hello\n" * 5)
    message.add_alternative("<b>hello</b>", subtype="html")
    parsed = email.parser.Parser(policy=email.policy.default).parsestr(
        message.as_string(policy=email.policy.default.clone(max_line_length=60))
    )
    return str(parsed["To"]), [part.get_content_type() for part in parsed.walk()]


@program
def html_parsing() -> object:
    class Links(html.parser.HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[object] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found.append((tag, attrs))

        def handle_data(self, data: str) -> None:
            self.found.append(data)

    links = Links()
    for i in range(12):
        links.feed(f'<p class="c{i}">a &amp; b &#62; <a href="/x?{i}">t<br/></a><!-- n --></p>')
    links.close()
    return links.found


@program
def csv_files() -> object:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, ["a", "b"], extrasaction="ignore")
    writer.writeheader()
    writer.writerows({"a": i, "b": f'q"{i}', "c": 0} for i in range(20))
    sample = stream.getvalue()
    return list(csv.DictReader(io.StringIO(sample))), csv.Sniffer().sniff(sample).delimiter


@program
def config_files() -> object:
    parser = configparser.ConfigParser(interpolation=configparser.ExtendedInterpolation())
    parser.read_string("[a]\nx = 1\ny = ${x}2\n[b]\nz : ${a:y}\n  more\nflag = yes\n")
    stream = io.StringIO()
    parser.write(stream)
    return parser.get("b", "z"), parser.getboolean("b", "flag"), stream.getvalue()


@program
def templates() -> object:
    template = string.Template("$who likes ${what} for $$${price}")
    formatter = string.Formatter()
    return [
        (
            template.substitute(who=w, what="it", price=i),
            formatter.format("{0!r:>10} {k[0]:{width}}", w, k=[i], width=5),
            string.capwords(w),
        )
        for i, w in enumerate(_WORDS)
    ]


@program
def heaps() -> object:
    items = [(i * 37) % 101 for i in range(80)]
    merged = list(heapq.merge(sorted(items), sorted(items, reverse=False), key=lambda x: x))
    return heapq.nlargest(5, items, key=math.sqrt), heapq.nsmallest(3, merged)


@program
def statistics_of_fractions() -> object:
    data = [fractions.Fraction(i, 7) for i in range(1, 30)]
    floats = [float(x) for x in data]
    return (
        statistics.mean(data),
        statistics.stdev(floats),
        statistics.quantiles(floats, n=5),
        statistics.NormalDist.from_samples(floats).inv_cdf(0.7),
    )


@program
def log_records() -> object:
    stream = io.StringIO()
    logger = logging.Logger("fastprof.test", logging.INFO)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("{levelname}:{name}:{message}", style="{"))
    logger.addHandler(handler)
    for i in range(10):
        logger.info("step %d of %s", i, "ten")
        logger.debug("never %d", i)
        try:
            raise ValueError(i)
        except ValueError:
            logger.warning("failed", extra={"i": i})
    return len(stream.getvalue())


@program
def coroutines() -> object:
    async def worker(queue: asyncio.Queue[int], done: list[int]) -> None:
        while True:
            item = await queue.get()
            await asyncio.sleep(0)
            done.append(item * item)
            queue.task_done()

    async def numbers(n: int) -> object:
        for i in range(n):
            yield i
            await asyncio.sleep(0)

    async def run() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(3)
        done: list[int] = []
        workers = [asyncio.ensure_future(worker(queue, done)) for _ in range(3)]
        async for i in numbers(10):
            await queue.put(i)
        await queue.join()
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        return sorted(done)

    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


@program
def shell_words() -> object:
    line = "run --name 'a b' \"c $d\" e\\ f # note"
    return shlex.split(line, comments=True), shlex.join(_WORDS), list(shlex.shlex(line, posix=True))


@program
def web_addresses() -> object:
    urllib.parse.clear_cache() if hasattr(urllib.parse, "clear_cache") else None
    base = "https://user@example.org:8080/a/b/../c;p?q=1&q=2&r=%C3%A9#frag"
    parts = urllib.parse.urlsplit(base)
    return (
        parts.geturl(),
        urllib.parse.parse_qs(parts.query),
        urllib.parse.urljoin(base, "../d?x"),
        urllib.parse.urlencode({"a": ["b c", "d"], "e": "\u00e9"}, doseq=True),
    )


@program
def calendars() -> object:
    parsed = [datetime.datetime.strptime(f"2024-0{m}-11", "%Y-%m-%d") for m in range(1, 10)]
    return (
        calendar.TextCalendar().formatyear(2024),
        calendar.HTMLCalendar().formatmonth(2024, 2),
        parsed,
    )


@program
def data_classes() -> object:
    @functools.singledispatch
    def show(value: object) -> str:
        return repr(value)

    @show.register
    def _(value: int) -> str:
        return f"int {value}"

    @dataclasses.dataclass(order=True)
    class Point:
        x: int
        y: int = 0
        tags: list[int] = dataclasses.field(default_factory=list, compare=False)

    points = [Point(i % 3, i, [i]) for i in range(10)]
    return [show(p.x) for p in sorted(points)], dataclasses.asdict(max(points)), show("x")


@program
def exceptions_and_contexts() -> object:
    @contextlib.contextmanager
    def ignoring(kind: type[Exception]) -> Iterator[None]:
        with contextlib.suppress(kind):
            yield

    def fail(depth: int) -> None:
        if not depth:
            raise KeyError(depth)
        try:
            fail(depth - 1)
        finally:
            seen.append(depth)

    seen: list[int] = []
    with contextlib.ExitStack() as stack:
        stack.callback(seen.append, -1)
        for i in range(6):
            with ignoring(LookupError):
                fail(i)
    return seen


@program
def n_body() -> object:
    bodies = [
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 39.0],
        [[4.8, -1.1, -0.1], [0.6, 2.8, -0.02], 0.03],
        [[8.3, 4.1, -0.4], [-1.0, 1.8, 0.008], 0.01],
    ]

    def advance(dt: float) -> None:
        for (p1, v1, m1), (p2, v2, m2) in itertools.combinations(bodies, 2):
            delta = [a - b for a, b in zip(p1, p2)]
            scale = dt / math.pow(sum(d * d for d in delta), 1.5)
            for axis in range(3):
                v1[axis] -= delta[axis] * m2 * scale
                v2[axis] += delta[axis] * m1 * scale
        for position, velocity, _mass in bodies:
            for axis in range(3):
                position[axis] += dt * velocity[axis]

    for _ in range(20):
        advance(0.01)
    return bodies


@program
def fannkuch() -> object:
    def flips(order: tuple[int, ...]) -> int:
        work, count = list(order), 0
        while work[0]:
            work[: work[0] + 1] = reversed(work[: work[0] + 1])
            count += 1
        return count

    return max(flips(order) for order in itertools.permutations(range(5)))


@program
def queens() -> object:
    def place(n: int, row: int, columns: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if row == n:
            yield columns
            return
        for column in range(n):
            if all(column != c and abs(column - c) != row - r for r, c in enumerate(columns)):
                yield from place(n, row + 1, (*columns, column))

    return len(list(place(5, 0, ())))


class _Packet:
    def __init__(self, link: _Packet | None, kind: int) -> None:
        self.link, self.kind, self.datum = link, kind, 0


class _Task:
    def __init__(self, name: str, priority: int) -> None:
        self.name, self.priority = name, priority
        self.queue: list[_Packet] = []
        self.held = False

    @property
    def ready(self) -> bool:
        return bool(self.queue) and not self.held

    def run(self, scheduler: _Scheduler) -> None:
        packet = self.queue.pop(0)
        packet.datum += 1
        self.work(packet, scheduler)

    def work(self, packet: _Packet, scheduler: _Scheduler) -> None:
        raise NotImplementedError


class _Device(_Task):
    def work(self, packet: _Packet, scheduler: _Scheduler) -> None:
        if packet.datum < 12:
            scheduler.send("handler", packet)
        else:
            scheduler.finished.append(packet)


class _Handler(_Task):
    def work(self, packet: _Packet, scheduler: _Scheduler) -> None:
        self.held = packet.datum % 5 == 4
        scheduler.send("device" if packet.kind else "worker", packet)


class _Worker(_Task):
    def work(self, packet: _Packet, scheduler: _Scheduler) -> None:
        packet.kind = 1 - packet.kind
        scheduler.send("handler", packet)


class _Scheduler:
    """Tasks that pass packets on, like the Richards benchmark."""

    def __init__(self) -> None:
        self.tasks = [_Device("device", 3), _Handler("handler", 2), _Worker("worker", 1)]
        self.finished: list[_Packet] = []

    def send(self, name: str, packet: _Packet) -> None:
        next(task for task in self.tasks if task.name == name).queue.append(packet)

    def step(self) -> bool:
        ready = [task for task in self.tasks if task.ready]
        if not ready:
            held = [task for task in self.tasks if task.held]
            for task in held:
                task.held = False
            return bool(held) and any(task.queue for task in self.tasks)
        max(ready, key=lambda task: task.priority).run(self)
        return True


@program
def scheduler() -> object:
    tasks = _Scheduler()
    for kind in (0, 1, 1, 0):
        tasks.send("worker", _Packet(None, kind))
    steps = 0
    while tasks.step() and steps < 500:
        steps += 1
    return steps, len(tasks.finished)


class _Variable:
    def __init__(self, value: int) -> None:
        self.value = value
        self.constraints: list[_Scale] = []


class _Scale:
    def __init__(self, source: _Variable, target: _Variable, factor: int) -> None:
        self.source, self.target, self.factor = source, target, factor
        source.constraints.append(self)

    def execute(self) -> None:
        self.target.value = self.source.value * self.factor + 1

    def __lt__(self, other: _Scale) -> bool:
        return self.factor < other.factor


@program
def constraints() -> object:
    """Values that depend on each other, like the DeltaBlue benchmark."""

    def plan(variable: _Variable) -> Iterator[_Scale]:
        for constraint in sorted(variable.constraints):
            yield constraint
            yield from plan(constraint.target)

    chain = [_Variable(i) for i in range(20)]
    for i in range(1, 20):
        _Scale(chain[i - 1], chain[i], i % 3)
        if i % 4 == 0:
            _Scale(chain[i - 1], _Variable(0), 2)
    for start in range(3):
        chain[0].value = start
        for constraint in plan(chain[0]):
            constraint.execute()
    return [variable.value for variable in chain]


@program
def towers() -> object:
    def move(n: int, a: list[int], b: list[int], c: list[int]) -> int:
        if not n:
            return 0
        moved = move(n - 1, a, c, b)
        c.append(a.pop())
        return moved + 1 + move(n - 1, b, a, c)

    return move(6, list(range(6)), [], [])
