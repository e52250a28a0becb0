"""When pages moved and were read in a pass: one pair of seconds for everything that may happen to one."""

import numpy as np


class PageStamps:
    """Start and end of everything that happens to pages of so many `blocks` in a pass; `values` (n, 2).

    `pages`: of a block, at most, that are at home; `leaving`: that leave in one pass. Blocks are ranked from 0."""

    def __init__(self, blocks: int, pages: int, leaving: int) -> None:
        self._pages, self._leaving = pages, leaving
        self._windows = 2 * blocks * pages
        self._last = self._windows + blocks
        self.values = np.zeros((self._last + blocks * leaving, 2))
        self._views = [row.data for row in self.values]

    def coming(self, rank: int, page: int) -> memoryview:
        """Where the times go of page `page` of block `rank` as it comes."""
        return self._views[self.of_page(rank, page)[0]]

    def read(self, rank: int, page: int) -> memoryview:
        """Where the times go of page `page` of block `rank` as it is read."""
        return self._views[self.of_page(rank, page)[1]]

    def resident(self, rank: int) -> memoryview:
        """Where the times go of the window of block `rank` as it is read."""
        return self._views[self.of_resident(rank)]

    def leaving(self, rank: int, number: int) -> memoryview:
        """Of the page that leaves as number `number` of a block."""
        return self._views[self.of_leaving(rank, number)]

    def of_page(self, rank: int, page: int) -> tuple[int, int]:
        """The rows of a page: as it comes, as it is read."""
        at = 2 * (rank * self._pages + page)
        return at, at + 1

    def of_resident(self, rank: int) -> int:
        """The row of a window."""
        return self._windows + rank

    def of_leaving(self, rank: int, number: int) -> int:
        """The row of a page that leaves."""
        return self._last + rank * self._leaving + number
