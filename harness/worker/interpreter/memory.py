"""What an interpreted launch may touch, and who did: accesses out of bounds, races between programs.

The interpreter runs programs one after another, so a race never shows in its results. Here every element has
a shadow: which program stored it last, which loaded it. Programs have no order among them, unless atomics
make one (vector clocks, as in a race detector for threads): what a program did before it released an address
is known to the program that acquires it later.

- Two programs that store different values to one element race; equal values do no harm.
- So do a load and a store of another value by different programs.
- An element that is ever accessed atomically is a synchronisation variable from then on: its accesses never
  race, and order what surrounds them. Addresses of one tensor are taken together there, which can only hide
  a race, never invent one.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NOBODY, SEVERAL, FIRST = 0, 1, 2  # stamps; from FIRST on they are numbers of segments
SPARE_SEGMENTS = 64
LOADS_KEPT = 1 << 21  # addresses


class Fault(BaseException):
    """What a kernel did wrong. No `Exception`, so that a candidate's fallback does not swallow it."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


@dataclass
class Storage:
    """The memory behind one or more tensors of a launch, with its shadow (made when it is first needed)."""

    start: int
    end: int
    name: str
    granule: int  # bytes per shadow element, a power of two
    shadow: dict[str, Any] = field(default_factory=dict)
    released: Any = None  # segments that an acquire of this storage makes known
    # Loads so far (segment, what it knew, addresses, bytes): most memory is never stored to, and needs no
    # stamps then.
    loads: list[tuple[int, Any, Any, int]] = field(default_factory=list)
    loaded: int = 0

    def note_load(self, segment: int, known: Any, addresses: Any, size: int) -> None:
        self.loads.append((segment, known, addresses, size))
        self.loaded += len(addresses)
        if self.loaded > LOADS_KEPT:
            self.readers()

    def readers(self) -> Any:
        """The stamps of loads, brought up to date."""
        for segment, known, addresses, size in self.loads:
            elements = self.elements(addresses, size)
            stamps = self.stamps("reader")
            stamps[elements] = np.where(known[stamps[elements]], segment, SEVERAL)
        self.loads, self.loaded = [], 0
        return self.stamps("reader")

    @property
    def is_loaded(self) -> bool:
        return bool(self.loads) or "reader" in self.shadow

    def stamps(self, kind: str) -> Any:
        if kind not in self.shadow:
            size = -(-(self.end - self.start) // self.granule)
            self.shadow[kind] = np.zeros(size, dtype=bool if kind == "atomic" else np.int32)
        return self.shadow[kind]

    def elements(self, addresses: Any, size: int) -> Any:
        """Numbers of the shadow elements that accesses of `size` bytes touch."""
        offsets = (addresses - np.uint64(self.start)).view(np.int64)
        if size < self.granule or (self.granule > 1 and bool((offsets & (self.granule - 1)).any())):
            self._refine(1)
        first = offsets >> (self.granule.bit_length() - 1)
        width = size // self.granule
        return first if width == 1 else (first[:, None] + np.arange(width)).ravel()

    def _refine(self, granule: int) -> None:
        factor, self.granule = self.granule // granule, granule
        size = self.end - self.start
        self.shadow = {kind: np.repeat(stamps, factor)[:size] for kind, stamps in self.shadow.items()}


class Launch:
    """One launch of a kernel: its memory and the programs that have run so far."""

    def __init__(
        self, kernel: str, read: Callable[[Any, int], Any], find_more: Callable[[int], Storage | None]
    ) -> None:
        """`read` returns the bytes at addresses as integers of a size; `find_more` the memory around an
        address that is in no tensor of the launch, if that is legitimate.
        """
        self.kernel, self.read, self.find_more = kernel, read, find_more
        self.storages: list[Storage] = []
        self.starts: list[int] = []
        self.owners: list[Any] = [None, None]  # the program of each segment
        self.program: tuple[int, int, int] = (0, 0, 0)
        self.capacity = FIRST
        self.touched: Any = None  # segments with any access
        self.known: Any = None  # segments that happened before the running program's next access
        self.segment = FIRST

    def add(self, storage: Storage) -> None:
        """Memory that may be accessed. Tensors of one storage share an entry."""
        at = bisect.bisect_left(self.starts, storage.start)
        if at < len(self.starts) and self.starts[at] == storage.start:
            mine = self.storages[at]
            mine.end, mine.granule = max(mine.end, storage.end), min(mine.granule, storage.granule)
        else:
            self.starts.insert(at, storage.start)
            self.storages.insert(at, storage)

    def begin(self, program: tuple[int, int, int], programs: int) -> None:
        """The next program runs."""
        if self.touched is None:
            self.capacity = FIRST + 4 * programs + SPARE_SEGMENTS
            self.touched = np.zeros(self.capacity, dtype=bool)
        self.program = program
        self.known = np.zeros(self.capacity, dtype=bool)
        self.known[NOBODY] = True
        self._open_segment()

    def state(self) -> tuple[tuple[int, int, int], Any, int]:
        """What the running program is and knows."""
        return self.program, self.known, self.segment

    def resume(self, state: tuple[tuple[int, int, int], Any, int]) -> None:
        """That program goes on, after another one has run."""
        self.program, self.known, self.segment = state

    def _open_segment(self) -> None:
        if len(self.owners) < self.capacity:  # else the old one goes on: fewer races are seen
            self.owners.append(self.program)
        self.segment = len(self.owners) - 1
        self.known[self.segment] = True

    # -- accesses --------------------------------------------------------------------------------------

    def load(self, pointers: Any, mask: Any, size: int) -> None:
        """Addresses (uint64), which of them are read, and bytes each. Raises Fault."""
        for storage, addresses in self._split("load", pointers, mask, size):
            self.touched[self.segment] = True
            storage.note_load(self.segment, self.known, addresses, size)
            if not storage.shadow:
                continue
            elements = storage.elements(addresses, size)
            if "atomic" in storage.shadow:
                elements = self._plain(storage, elements, release=False)
            if "writer" in storage.shadow:
                writers = storage.shadow["writer"][elements]
                if not self.known[writers].all():
                    self._race(storage, elements, writers, "loads what", "stores")

    def store(self, pointers: Any, mask: Any, size: int, perform: Callable[[], None]) -> None:
        """Like `load`; `perform` stores."""
        parts = [(s, a, s.elements(a, size)) for s, a in self._split("store", pointers, mask, size)]
        doubtful = [part for part in parts if not self._ordered(part[0], part[2])]
        before = [self.read(addresses, size) for _, addresses, _ in doubtful]
        perform()
        for (storage, addresses, _), old in zip(doubtful, before, strict=True):
            changed = addresses[self.read(addresses, size) != old]
            self._check_store(storage, storage.elements(changed, size))
        for storage, _, elements in parts:
            plain = self._plain(storage, elements, release=True) if "atomic" in storage.shadow else elements
            storage.stamps("writer")[plain] = self.segment
            self.touched[self.segment] = True

    def atomic(self, pointers: Any, mask: Any, size: int, *, acquire: bool, release: bool) -> None:
        for storage, addresses in self._split("atomic", pointers, mask, size):
            elements = storage.elements(addresses, size)
            storage.stamps("atomic")[elements] = True
            if acquire:
                self._acquire(storage)
            if release:
                self._release(storage)

    def _split(self, kind: str, pointers: Any, mask: Any, size: int) -> Iterator[tuple[Storage, Any]]:
        """The active addresses of an access by storage; raises Fault for one that lies in none."""
        mask = mask if isinstance(mask, np.ndarray) else np.asarray(mask)
        active = pointers.ravel() if mask.all() else pointers[np.broadcast_to(mask, pointers.shape)]
        if active.size == 0:
            return
        low = int(active.min())
        at = bisect.bisect_right(self.starts, low) - 1
        if at >= 0 and int(active.max()) + size <= self.storages[at].end:
            yield self.storages[at], active
            return
        self._require(kind, active, size)
        numbers = np.searchsorted(np.array(self.starts, dtype=np.uint64), active, side="right") - 1
        for number in np.unique(numbers):
            yield self.storages[number], active[numbers == number]

    def _require(self, kind: str, addresses: Any, size: int) -> None:
        for _ in range(len(addresses)):
            starts = np.array(self.starts, dtype=np.uint64)
            ends = np.array([s.end for s in self.storages], dtype=np.uint64)
            at = np.searchsorted(starts, addresses, side="right") - 1
            outside = at < 0
            if len(ends):
                outside = outside | (addresses + np.uint64(size) > ends[np.maximum(at, 0)])
            if not outside.any():
                return
            address = int(addresses[outside][0])
            more = self.find_more(address)
            if more is None or address + size > more.end:
                self._out_of_bounds(kind, address, size, int(outside.sum()), len(addresses))
            else:
                self.add(more)

    def _out_of_bounds(self, kind: str, address: int, size: int, lanes: int, of: int) -> None:
        what = f"kernel {self.kernel}, program {self.program}: {kind} of {size} bytes"
        if not self.storages:
            raise Fault("out-of-bounds", f"{what} without any tensor")
        near = min(self.storages, key=lambda s: max(s.start - address, address - s.end, 0))
        offset, whole = address - near.start, near.end - near.start
        raise Fault(
            "out-of-bounds",
            f"{what} at byte {offset} of {near.name}, which has {whole} ({lanes} of {of} lanes outside)",
        )

    # -- order -----------------------------------------------------------------------------------------

    def _ordered(self, storage: Storage, elements: Any) -> bool:
        """Whether whoever touched these elements before did so before this program."""
        seen = [storage.stamps("writer"), *([storage.readers()] if storage.is_loaded else [])]
        return all(bool(self.known[stamps[elements]].all()) for stamps in seen)

    def _check_store(self, storage: Storage, elements: Any) -> None:
        if "atomic" in storage.shadow:
            elements = elements[~storage.shadow["atomic"][elements]]
        writers = storage.stamps("writer")[elements]
        if not self.known[writers].all():
            self._race(storage, elements, writers, "stores another value than", "to")
        readers = storage.readers()[elements]
        if bool(self.known[self.touched].all()):  # it knows all there was: then also each of several readers
            readers = readers[readers != SEVERAL]
        if not self.known[readers].all():
            self._race(storage, elements, readers, "stores what", "loads")

    def _plain(self, storage: Storage, elements: Any, *, release: bool) -> Any:
        """Plain accesses of synchronisation variables order like atomics; the other elements are returned."""
        atomic = storage.shadow["atomic"][elements]
        if atomic.any():
            if release:
                self._release(storage)
            else:
                self._acquire(storage)
        return elements[~atomic]

    def _acquire(self, storage: Storage) -> None:
        if storage.released is not None:
            self.known |= storage.released

    def _release(self, storage: Storage) -> None:
        if storage.released is None:
            storage.released = self.known.copy()
        else:
            storage.released |= self.known
        if self.touched[self.segment]:
            self._open_segment()

    def _race(self, storage: Storage, elements: Any, stamps: Any, what: str, does: str) -> None:
        at = int(np.flatnonzero(~self.known[stamps])[0])
        other = self.owners[stamps[at]]
        who = f"program {other}" if other else "another program"
        raise Fault(
            "race",
            f"kernel {self.kernel}: program {self.program} {what} {who} {does} "
            f"byte {int(elements[at]) * storage.granule} of {storage.name}, without atomics between them",
        )
