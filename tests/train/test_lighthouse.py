from __future__ import annotations

import sys
from typing import Any
from urllib.request import urlopen

import pytest

from aryl.train.lighthouse import start_lighthouse


def test_it_listens_on_the_loopback_address_and_is_loaded_without_torch() -> None:
    before = "torch" in sys.modules
    server, address = start_lighthouse()
    try:
        assert address.startswith("http://127.0.0.1:")
        with urlopen(address, timeout=30) as page:
            assert page.status == 200
    finally:
        server.shutdown()
    assert ("torch" in sys.modules) == before


def test_where_torchft_is_missing_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: dict[str, Any] = sys.modules
    monkeypatch.setitem(modules, "torchft", None)
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        start_lighthouse()
