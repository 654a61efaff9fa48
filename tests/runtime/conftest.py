from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from zenoh_net import Net


@pytest.fixture
def net() -> Iterator[Net]:
    from zenoh_net import Net  # it needs the package zenoh, and other tests here do not

    net = Net()
    yield net
    for opened in net.opened:
        opened.close()
